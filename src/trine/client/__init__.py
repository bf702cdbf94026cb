"""The client: the same interface as the embedded library, for a broker that is a server.

    address      trine://key@host:port, taken apart
    connection   one TCP connection: frames out, frames in
    link         the way to one server: requests and their answers, over connections that come and go
    session      a consumer's membership: receive, push with credits, acks that are joined
    leases       what a consumer holds, and the runs that settle it
    topics       what is known of topics, and batches made by it
    sending      messages gathered into batches, for `topic.sender`
    reading      the log, read over the wire
    options      keywords as plain values
    opening      an address and a key become a link
    aio/         the handles users hold; `sync/` is generated from it
    aio_link, sync_link   how either form reaches the link: the only place where they differ

It imports the model, the wire, the batch codec and the structs of a trace; never the broker.
"""
