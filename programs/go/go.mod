module memwright/heap

go 1.21
