// Program of franz-go; ../../python/serve.py states the form of requests and answers.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"trial/serve"
)

var (
	servers   = serve.Servers()
	producers = map[string]*kgo.Client{}
	admin     *kadm.Client
	codecs    = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	levels = map[string]kgo.Acks{
		"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
)

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(servers...))...)
	if err != nil {
		panic(err)
	}
	return made
}

func produce(ctx context.Context, asked serve.Request) (any, error) {
	key := fmt.Sprint(asked.Acks, asked.Compression, asked.Idempotent)
	if producers[key] == nil {
		options := []kgo.Opt{
			kgo.RequiredAcks(levels[asked.Acks]), kgo.ProducerBatchCompression(codecs[asked.Compression]),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5 * time.Millisecond),
			kgo.RecordDeliveryTimeout(asked.Limit())}
		if !asked.Idempotent {
			options = append(options, kgo.DisableIdempotentWrite())
		}
		producers[key] = client(options...)
	}
	var sent []*kgo.Record
	for _, pair := range asked.Records {
		sent = append(sent, &kgo.Record{Topic: asked.Topic, Partition: asked.Partition, Key: pair[0],
			Value: pair[1], Headers: []kgo.RecordHeader{{Key: serve.Header, Value: asked.Header}}})
	}
	offsets := make([]*int64, len(sent))
	place := map[*kgo.Record]int{}
	for at, record := range sent {
		place[record] = at
	}
	for _, result := range producers[key].ProduceSync(ctx, sent...) {
		if result.Err == nil {
			offsets[place[result.Record]] = &result.Record.Offset
		} else {
			fmt.Fprintln(os.Stderr, result.Err)
		}
	}
	return offsets, nil
}

func fetch(asked serve.Request) (any, error) {
	start := kgo.NewOffset()
	if ms, is := serve.TimeOf(asked.Start); is {
		start = start.AfterMilli(ms)
	} else if at, is := asked.Start.(float64); is {
		start = start.At(int64(at))
	} else {
		start = start.AtStart()
	}
	reader := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		asked.Topic: {asked.Partition: start}}))
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), asked.Limit())
	defer cancel()
	rows := [][]any{}
	for len(rows) < asked.Count && ctx.Err() == nil {
		for _, row := range reader.PollRecords(ctx, asked.Count-len(rows)).Records() {
			rows = append(rows, []any{row.Offset, row.Timestamp.UnixMilli(), row.Key, row.Value,
				row.Headers[0].Value})
		}
	}
	return rows, nil
}

func offsets(ctx context.Context, asked serve.Request) (any, error) {
	var found kadm.ListedOffsets
	var err error
	if ms, is := serve.TimeOf(asked.At); is {
		found, err = admin.ListOffsetsAfterMilli(ctx, ms, asked.Topic)
	} else if asked.At == "earliest" {
		found, err = admin.ListStartOffsets(ctx, asked.Topic)
	} else {
		found, err = admin.ListEndOffsets(ctx, asked.Topic)
	}
	if err != nil {
		return nil, err
	}
	row, _ := found.Lookup(asked.Topic, asked.Partition)
	return row.Offset, row.Err
}

func metadata(ctx context.Context, asked serve.Request) (any, error) {
	found, err := admin.Metadata(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	ids := []int{}
	for _, broker := range found.Brokers {
		ids = append(ids, int(broker.NodeID))
	}
	sort.Ints(ids)
	return map[string]any{"brokers": ids, "partitions": len(found.Topics[asked.Topic].Partitions)}, nil
}

func perform(asked serve.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*serve.Timeout)
	defer cancel()
	switch asked.Do {
	case "produce":
		return produce(ctx, asked)
	case "fetch":
		return fetch(asked)
	case "offsets":
		return offsets(ctx, asked)
	case "metadata":
		return metadata(ctx, asked)
	case "create":
		_, err := admin.CreateTopic(ctx, asked.Partitions, asked.Replication, nil, asked.Topic)
		return nil, err
	case "describe":
		found, err := admin.DescribeTopicConfigs(ctx, asked.Topic)
		if err != nil {
			return nil, err
		}
		for _, entry := range found[0].Configs {
			if entry.Key == asked.Name {
				return entry.Value, nil
			}
		}
		return nil, found[0].Err
	case "alter":
		answers, err := admin.AlterTopicConfigs(ctx,
			[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: asked.Name, Value: &asked.Value}}, asked.Topic)
		if err != nil {
			return nil, err
		}
		return nil, answers[0].Err
	case "delete_records":
		places := kadm.Offsets{}
		places.AddOffset(asked.Topic, asked.Partition, asked.Before, -1)
		answers, err := admin.DeleteRecords(ctx, places)
		if err != nil {
			return nil, err
		}
		return nil, answers.Error()
	case "delete":
		answers, err := admin.DeleteTopics(ctx, asked.Topic)
		if err != nil {
			return nil, err
		}
		return nil, answers.Error()
	}
	return nil, fmt.Errorf("unknown verb %q", asked.Do)
}

func main() {
	admin = kadm.NewClient(client())
	serve.Serve(perform)
}
