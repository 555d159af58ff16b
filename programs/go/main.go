// Does Go's runtime keep a heap of 128 MiB, collected 20 times while goroutines on every CPU replace a quarter of it?
// The checksum depends on no schedule.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
)

const (
	cpus    = 4
	workers = 8
	rounds  = 20
	live    = 128 << 20
	words   = 127
)

// A node is 1 KiB.
type node struct {
	next  *node
	value [words]uint64
}

func mix(x uint64) uint64 {
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

func fresh(seed uint64, next *node) *node {
	n := &node{next: next}
	seed = mix(seed)
	for i := range n.value {
		n.value[i] = seed + uint64(i)
	}
	return n
}

// Replaces every fourth node, from another one on each round, and sums what the list holds.
func (head *node) turn(round int) (sum uint64) {
	at := 0
	for previous, n := head, head.next; n != nil; previous, n = n, n.next {
		if at%4 == round%4 {
			n = fresh(n.value[words-1], n.next)
			previous.next = n
		}
		sum = mix(sum ^ n.value[at%words])
		at++
	}
	return sum
}

func main() {
	runtime.GOMAXPROCS(cpus)
	heads := make([]*node, workers)
	sums := make(chan uint64)
	for round := 0; round < rounds; round++ {
		for i := range heads {
			go func(i, round int) {
				if heads[i] == nil {
					heads[i] = new(node)
					for j := 0; j < live/workers/1024; j++ {
						heads[i].next = fresh(uint64(i<<32|j), heads[i].next)
					}
				}
				sums <- heads[i].turn(round)
			}(i, round)
		}
		var collection sync.WaitGroup
		collection.Add(1)
		go func() {
			runtime.GC()
			collection.Done()
		}()
		var sum uint64
		for range heads {
			sum += <-sums
		}
		collection.Wait()
		fmt.Printf("round %d: %016x\n", round, sum)
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.NumGC < rounds || stats.HeapAlloc < live {
		fmt.Println("collections:", stats.NumGC, "heap:", stats.HeapAlloc)
		os.Exit(1)
	}
	runtime.KeepAlive(heads)
}
