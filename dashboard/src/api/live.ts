// The live stream: one connection for the page, opened anew when the page on view needs other numbers, and by itself
// after it was lost. Nothing is asked while the page is hidden.

import { effect, signal } from "@preact/signals"
import { address } from "./call"
import { mayLookIn, openSession } from "./session"
import type { Live } from "./types"

export type Link = "connecting" | "up" | "lost"

export const live = signal<Live | null>(null)
export const link = signal<Link>("connecting")
/** Counted up each time a lost connection is back: what was loaded before is loaded again. */
export const returns = signal(0)

const QUIET_MS = 6_000
const RETRY_MS = [500, 1_000, 2_000, 3_000]

interface Wanted {
	topics: string[]
	groups: boolean
}

const wanted = signal<Wanted>({ topics: [], groups: false })

/** What the page on view needs beside the totals. The last one to ask is the page on view. */
export function watch(topics: string[], groups = false): void {
	const now = wanted.peek()
	const same = now.groups === groups && now.topics.join() === topics.join()
	if (!same) wanted.value = { topics, groups }
}

let source: EventSource | null = null
let retry: ReturnType<typeof setTimeout> | undefined
let quiet: ReturnType<typeof setTimeout> | undefined
let failures = 0

function close(): void {
	source?.close()
	source = null
	clearTimeout(retry)
	clearTimeout(quiet)
}

function open({ topics, groups }: Wanted): void {
	close()
	const query = { topics: topics.join(","), groups: groups || undefined }
	source = new EventSource(address("/v1/live", query))
	listen()
	source.addEventListener("live", (event) => {
		const first = link.peek() === "lost"
		failures = 0
		live.value = JSON.parse((event as MessageEvent<string>).data) as Live
		link.value = "up"
		if (first) returns.value++
		listen()
	})
	source.addEventListener("closing", lost)
	source.onerror = lost
}

/** A connection can be dead without a word: no sample for some seconds is as good as an error. */
function listen(): void {
	clearTimeout(quiet)
	quiet = setTimeout(lost, QUIET_MS)
}

function lost(): void {
	close()
	failures++
	if (failures > 1) void openSession().catch(() => undefined) // the key may be gone; no answer is said by the banner
	// One failure is said only when the next try fails too, unless numbers had been coming.
	if (link.peek() === "up" || failures > 1) link.value = "lost"
	retry = setTimeout(() => open(wanted.peek()), RETRY_MS[Math.min(failures, RETRY_MS.length) - 1])
}

export function startLive(): () => void {
	const hidden = signal(document.hidden)
	const look = () => {
		hidden.value = document.hidden
	}
	document.addEventListener("visibilitychange", look)
	const stop = effect(() => {
		const now = wanted.value
		if (mayLookIn.value && !hidden.value) open(now)
		else close()
	})
	return () => {
		document.removeEventListener("visibilitychange", look)
		stop()
		close()
	}
}
