"""The binary protocol, sans-IO: frames in, commands out. No sockets and no clocks here; see docs/protocol.md."""
