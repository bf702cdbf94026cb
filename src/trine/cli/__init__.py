"""The `trine` command: one file a verb.

A verb talks to a server or to a data directory through the same `Broker`, and does what a program with that broker
could do: nothing here knows the engine, and nothing here decides. `verb` gives every command its common options and
its session; `exits` has the exit codes. Modules of verbs import what is heavy when they run, so that `trine --help`
is quick.
"""
