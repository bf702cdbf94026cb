"""HTTP: REST at /v1, the five simple calls, streams, and what operators ask for.

    listener ─▶ gate ─▶ (publishing) | Litestar ─▶ one file a noun ─▶ broker
            └▶ direct ─▶ (publish, produce, ack) ─▶ broker

The gate answers before anything else: is the server ready, is the path plain, who asks. Each handler names what it
does (`may=`) and the guard asks the key. Errors are translated once, in `problems`. No GET changes anything, save
`/consume`, which is one of the simple calls.
"""
