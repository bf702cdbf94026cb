"""The web page that `trine serve` answers at `/`: for people who run Trine.

Nothing is here but files: the sources are in `dashboard/`, in TypeScript, and `make dashboard` builds them into
`static` beside this file. It refuses to know anything of the broker: the page speaks the HTTP API, as every other
client does, and `trine.server.http.site` is who serves the files.
"""
