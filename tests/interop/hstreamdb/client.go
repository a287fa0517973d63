// Does with the official Go client what an application does, and prints what it saw as JSON: client produce|consume HOST:PORT
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/hstreamdb/hstreamdb-go/hstream"
	"github.com/hstreamdb/hstreamdb-go/hstream/Record"
	"github.com/hstreamdb/hstreamdb-go/hstream/compression"
)

const count = 30

func check[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// produce appends ten records with each compression, objects and bytes in turn; it returns the ids by number.
func produce(client *hstream.HStreamClient) any {
	if err := client.CreateStream("official", hstream.WithShardCount(2), hstream.WithReplicationFactor(1)); err != nil {
		panic(err)
	}
	ids := map[string]string{}
	for kind, compressed := range []compression.CompressionType{compression.None, compression.Gzip, compression.Zstd} {
		producer := check(client.NewBatchProducer("official", hstream.WithBatch(4, 1000), hstream.TimeOut(50), hstream.WithCompression(compressed)))
		results := []hstream.AppendResult{}
		for index := 0; index < 10; index++ {
			number, key := kind*10+index, fmt.Sprintf("k%d", index%3)
			if index%2 == 0 {
				results = append(results, producer.Append(check(Record.NewHStreamHRecord(key, map[string]interface{}{"n": number}))))
			} else {
				results = append(results, producer.Append(check(Record.NewHStreamRawRecord(key, []byte(fmt.Sprint(number))))))
			}
		}
		for index, result := range results {
			ids[fmt.Sprint(kind*10+index)] = check(result.Ready()).String()
		}
		producer.Stop()
	}
	return ids
}

// consume acknowledges every record of a subscription; it returns the payloads by id.
func consume(client *hstream.HStreamClient) any {
	opts := []hstream.SubscriptionOpts{hstream.WithAckTimeout(60), hstream.WithOffset(hstream.EARLIEST)}
	if err := client.CreateSubscription("of-the-official", "ours", opts...); err != nil {
		panic(err)
	}
	seen := map[string]any{}
	consumer := client.NewConsumer("official", "of-the-official")
	frames := consumer.StartFetch()
	for len(seen) < count {
		select {
		case frame := <-frames:
			for _, record := range check(frame.Result, frame.Err) {
				seen[record.GetRecordId().String()] = record.GetPayload()
				record.Ack()
			}
		case <-time.After(30 * time.Second):
			panic(fmt.Sprintf("only %d records came", len(seen)))
		}
	}
	time.Sleep(6 * time.Second) // acks go out after 5 s; Stop cancels the call with those that are on their way
	consumer.Stop()
	return seen
}

func main() {
	client := check(hstream.NewHStreamClient("hstream://" + os.Args[2]))
	role := map[string]func(*hstream.HStreamClient) any{"produce": produce, "consume": consume}[os.Args[1]]
	fmt.Println(string(check(json.Marshal(role(client)))))
}
