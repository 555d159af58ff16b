# Go compiles a program that builds and drops trees, and runs it
# package: golang-go
mark=/workload/mark; test -x $mark || mark=true
mkdir -p /tmp/tree
cd /tmp/tree
cat > main.go <<'END'
package main

type node struct{ left, right *node }

func build(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{build(depth - 1), build(depth - 1)}
}

func (n *node) count() int {
	if n.left == nil {
		return 1
	}
	return 1 + n.left.count() + n.right.count()
}

func main() {
	sum := 0
	for round := 0; round < 20; round++ {
		sum += build(15).count()
	}
	println(sum)
}
END
export GOCACHE=/tmp/cache GOPATH=/tmp/go GO111MODULE=off GOFLAGS=-p=1
go build -o program main.go || exit
$mark begin 1
./program 2>&1 || exit
$mark end 1
