// Program of segmentio's kafka-go; ../../python/serve.py states the form of requests and answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/segmentio/kafka-go"

	"trial/serve"
)

const batchRecords = 25

var (
	writers = map[string]*kafka.Writer{}
	client  = &kafka.Client{Addr: kafka.TCP(serve.Servers()...), Timeout: serve.Timeout}
	codecs  = map[string]kafka.Compression{
		"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}
	levels = map[string]kafka.RequiredAcks{
		"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}
)

func produce(ctx context.Context, asked serve.Request) (any, error) {
	key := fmt.Sprint(asked.Acks, asked.Compression, asked.Partition)
	if writers[key] == nil {
		writers[key] = &kafka.Writer{
			Addr: client.Addr, RequiredAcks: levels[asked.Acks], Compression: codecs[asked.Compression],
			BatchSize: batchRecords, BatchTimeout: 5 * time.Millisecond, MaxAttempts: 300,
			Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return int(asked.Partition) })}
	}
	var sent []kafka.Message
	for _, pair := range asked.Records {
		sent = append(sent, kafka.Message{Topic: asked.Topic, Key: pair[0], Value: pair[1],
			Headers: []kafka.Header{{Key: serve.Header, Value: asked.Header}}})
	}
	err := writers[key].WriteMessages(ctx, sent...)
	var each kafka.WriteErrors
	if err != nil && !errors.As(err, &each) {
		fmt.Fprintln(os.Stderr, err)
		return make([]any, len(sent)), nil
	}
	offsets := make([]any, len(sent))
	for place := range offsets {
		if each == nil || each[place] == nil {
			offsets[place] = -1
		}
	}
	return offsets, nil
}

func fetch(ctx context.Context, asked serve.Request) (any, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: serve.Servers(), Topic: asked.Topic,
		Partition: int(asked.Partition), MaxWait: 200 * time.Millisecond})
	defer reader.Close()
	if ms, is := serve.TimeOf(asked.Start); is {
		if err := reader.SetOffsetAt(ctx, time.UnixMilli(ms)); err != nil {
			return nil, err
		}
	} else if at, is := asked.Start.(float64); is {
		reader.SetOffset(int64(at))
	} else {
		reader.SetOffset(kafka.FirstOffset)
	}
	rows := [][]any{}
	for len(rows) < asked.Count {
		row, err := reader.ReadMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, []any{row.Offset, row.Time.UnixMilli(), row.Key, row.Value,
			row.Headers[0].Value})
	}
	return rows, nil
}

func offsets(ctx context.Context, asked serve.Request) (any, error) {
	wanted := kafka.LastOffsetOf(int(asked.Partition))
	ms, isTime := serve.TimeOf(asked.At)
	if isTime {
		wanted = kafka.TimeOffsetOf(int(asked.Partition), time.UnixMilli(ms))
	} else if asked.At == "earliest" {
		wanted = kafka.FirstOffsetOf(int(asked.Partition))
	}
	answer, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{asked.Topic: {wanted}}})
	if err != nil {
		return nil, err
	}
	found := answer.Topics[asked.Topic][0]
	if found.Error != nil {
		return nil, found.Error
	}
	if isTime {
		for offset := range found.Offsets {
			return offset, nil
		}
		return -1, nil
	}
	if asked.At == "earliest" {
		return found.FirstOffset, nil
	}
	return found.LastOffset, nil
}

func metadata(ctx context.Context, asked serve.Request) (any, error) {
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{asked.Topic}})
	if err != nil {
		return nil, err
	}
	ids := []int{}
	for _, broker := range found.Brokers {
		ids = append(ids, broker.ID)
	}
	sort.Ints(ids)
	return map[string]any{"brokers": ids, "partitions": len(found.Topics[0].Partitions)}, nil
}

func create(ctx context.Context, asked serve.Request) (any, error) {
	answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: asked.Topic, NumPartitions: int(asked.Partitions),
		ReplicationFactor: int(asked.Replication)}}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[asked.Topic]
}

func describe(ctx context.Context, asked serve.Request) (any, error) {
	answer, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic,
			ResourceName: asked.Topic, ConfigNames: []string{asked.Name}}}})
	if err != nil {
		return nil, err
	}
	return answer.Resources[0].ConfigEntries[0].ConfigValue, answer.Resources[0].Error
}

func alter(ctx context.Context, asked serve.Request) (any, error) {
	answer, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: asked.Topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: asked.Name,
				Value: asked.Value, ConfigOperation: kafka.ConfigOperationSet}}}}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Resources[0].Error
}

func remove(ctx context.Context, asked serve.Request) (any, error) {
	answer, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{asked.Topic}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[asked.Topic]
}

var verbs = map[string]func(context.Context, serve.Request) (any, error){
	"produce": produce, "fetch": fetch, "offsets": offsets, "metadata": metadata, "create": create,
	"describe": describe, "alter": alter, "delete": remove}

func main() {
	serve.Serve(func(asked serve.Request) (any, error) {
		limit := serve.Timeout
		if asked.TimeoutS > 0 {
			limit = asked.Limit()
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return verbs[asked.Do](ctx, asked)
	})
}
