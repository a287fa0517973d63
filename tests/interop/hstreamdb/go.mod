module silverfold/peer

go 1.21

require github.com/hstreamdb/hstreamdb-go v0.3.2
