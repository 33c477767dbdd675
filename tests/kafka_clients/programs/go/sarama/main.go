// Program of sarama; ../../python/serve.py states the form of requests and answers.
package main

import (
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/IBM/sarama"

	"trial/serve"
)

var (
	producers = map[string]sarama.AsyncProducer{}
	client    sarama.Client
	admin     sarama.ClusterAdmin
	codecs    = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
		"zstd": sarama.CompressionZSTD}
	levels = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
)

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V2_8_0_0
	made.Producer.Return.Successes = true
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.Retry.Max = 300
	made.Producer.Flush.Frequency = 5 * time.Millisecond
	return made
}

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func produce(asked serve.Request) (any, error) {
	key := fmt.Sprint(asked.Acks, asked.Compression, asked.Idempotent)
	if producers[key] == nil {
		settings := config()
		settings.Producer.RequiredAcks = levels[asked.Acks]
		settings.Producer.Compression = codecs[asked.Compression]
		settings.Producer.Idempotent = asked.Idempotent
		if asked.Idempotent {
			settings.Net.MaxOpenRequests = 1 // sarama requires it
		}
		made, err := sarama.NewAsyncProducer(serve.Servers(), settings)
		if err != nil {
			return nil, err
		}
		producers[key] = made
	}
	producer := producers[key]
	go func() {
		for place, pair := range asked.Records {
			message := &sarama.ProducerMessage{Topic: asked.Topic, Partition: asked.Partition,
				Key: sarama.ByteEncoder(pair[0]), Metadata: place,
				Headers: []sarama.RecordHeader{{Key: []byte(serve.Header), Value: asked.Header}}}
			if pair[1] != nil {
				message.Value = sarama.ByteEncoder(pair[1])
			}
			producer.Input() <- message
		}
	}()
	offsets := make([]*int64, len(asked.Records))
	limit := time.After(asked.Limit())
	for range asked.Records {
		select {
		case message := <-producer.Successes():
			offsets[message.Metadata.(int)] = &message.Offset
		case failed := <-producer.Errors():
			fmt.Fprintln(os.Stderr, failed)
		case <-limit:
			return nil, fmt.Errorf("not every record was answered in time")
		}
	}
	return offsets, nil
}

func offsetOf(topic string, partition int32, at any) (int64, error) {
	if ms, is := serve.TimeOf(at); is {
		return client.GetOffset(topic, partition, ms)
	}
	if at == "latest" {
		return client.GetOffset(topic, partition, sarama.OffsetNewest)
	}
	if offset, is := at.(float64); is {
		return int64(offset), nil
	}
	return client.GetOffset(topic, partition, sarama.OffsetOldest)
}

func fetch(asked serve.Request) (any, error) {
	if err := client.RefreshMetadata(asked.Topic); err != nil {
		return nil, err
	}
	start, err := offsetOf(asked.Topic, asked.Partition, asked.Start)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumer(serve.Servers(), config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(asked.Topic, asked.Partition, start)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	rows := [][]any{}
	limit := time.After(asked.Limit())
	for len(rows) < asked.Count {
		select {
		case row := <-reader.Messages():
			rows = append(rows, []any{row.Offset, row.Timestamp.UnixMilli(), row.Key, row.Value,
				row.Headers[0].Value})
		case <-limit:
			return rows, nil
		}
	}
	return rows, nil
}

func metadata(asked serve.Request) (any, error) {
	brokers, _, err := admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	ids := []int{}
	for _, broker := range brokers {
		ids = append(ids, int(broker.ID()))
	}
	sort.Ints(ids)
	topics, err := admin.DescribeTopics([]string{asked.Topic})
	if err != nil {
		return nil, err
	}
	return map[string]any{"brokers": ids, "partitions": len(topics[0].Partitions)}, nil
}

func perform(asked serve.Request) (any, error) {
	switch asked.Do {
	case "produce":
		return produce(asked)
	case "fetch":
		return fetch(asked)
	case "offsets":
		return offsetOf(asked.Topic, asked.Partition, asked.At)
	case "metadata":
		return metadata(asked)
	case "create":
		return nil, admin.CreateTopic(asked.Topic, &sarama.TopicDetail{
			NumPartitions: asked.Partitions, ReplicationFactor: asked.Replication}, false)
	case "describe":
		entries, err := admin.DescribeConfig(sarama.ConfigResource{
			Type: sarama.TopicResource, Name: asked.Topic, ConfigNames: []string{asked.Name}})
		if err != nil {
			return nil, err
		}
		return entries[0].Value, nil
	case "alter":
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, asked.Topic,
			map[string]sarama.IncrementalAlterConfigsEntry{asked.Name: {
				Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &asked.Value}}, false)
	case "delete_records":
		return nil, admin.DeleteRecords(asked.Topic, map[int32]int64{asked.Partition: asked.Before})
	case "delete":
		return nil, admin.DeleteTopic(asked.Topic)
	}
	return nil, fmt.Errorf("unknown verb %q", asked.Do)
}

func main() {
	client = must(sarama.NewClient(serve.Servers(), config()))
	admin = must(sarama.NewClusterAdmin(serve.Servers(), config()))
	serve.Serve(perform)
}
