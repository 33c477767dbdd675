// Package serve reads requests and writes answers; ../../python/serve.py states their form.
package serve

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"time"
)

// Timeout bounds every call that takes a bound.
const Timeout = 30 * time.Second

// Header is the name of the one header of every record.
const Header = "from"

// Request has the arguments of every verb; those of other verbs are zero.
type Request struct {
	Do, Topic, Acks, Compression, Name, Value string
	Partition, Partitions                     int32
	Replication                               int16
	Idempotent                                bool
	Header                                    []byte
	Records                                   [][2][]byte
	Start, At                                 any
	Before                                    int64
	Count                                     int
	TimeoutS                                  float64 `json:"timeout_s"`
}

// Limit returns the time in which the verb must end.
func (asked Request) Limit() time.Duration {
	return time.Duration(asked.TimeoutS * float64(time.Second))
}

// TimeOf returns the milliseconds of {"time": ms}, false for another form.
func TimeOf(at any) (int64, bool) {
	named, is := at.(map[string]any)
	if !is {
		return 0, false
	}
	return int64(named["time"].(float64)), true
}

// Servers returns the addresses that the program was started with.
func Servers() []string {
	return strings.Split(os.Args[1], ",")
}

// Serve answers requests until standard input ends.
func Serve(perform func(Request) (any, error)) {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked Request
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		result, err := perform(asked)
		answer := map[string]any{"ok": result}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			panic(err)
		}
	}
}
