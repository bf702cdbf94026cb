"""The sockets: one process that opens a store and lets others talk to it, by the binary protocol and by HTTP.

What a message is and what happens to it is the broker's; here are listeners, keys, configuration, metrics and logs.
"""
