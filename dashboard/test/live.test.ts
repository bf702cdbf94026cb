import { afterEach, beforeEach, expect, test, vi } from "vitest"

type Listener = (event: { data: string }) => void

/** An event source that the test speaks for. */
class Source {
	static all: Source[] = []
	listeners = new Map<string, Listener>()
	onerror: (() => void) | null = null
	closed = false
	constructor(readonly url: string) {
		Source.all.push(this)
	}
	addEventListener(name: string, listener: Listener): void {
		this.listeners.set(name, listener)
	}
	close(): void {
		this.closed = true
	}
	say(published_rate: number): void {
		const data = JSON.stringify({ at: "2026-01-14T15:00:00Z", totals: { published_rate } })
		this.listeners.get("live")?.({ data })
	}
	static get last(): Source {
		const last = Source.all.at(-1)
		if (!last) throw new Error("nothing was opened")
		return last
	}
}

let stop: () => void
let store: typeof import("../src/api/live")

beforeEach(async () => {
	vi.useFakeTimers()
	vi.resetModules()
	Source.all = []
	vi.stubGlobal("EventSource", Source)
	vi.stubGlobal("document", { hidden: false, addEventListener: () => undefined, removeEventListener: () => undefined })
	vi.stubGlobal("fetch", () => Promise.reject(new TypeError("no network")))
	store = await import("../src/api/live")
	const { session } = await import("../src/api/session")
	session.value = { keys: false, authenticated: false, id: null, role: null, topics: [], may: [] }
	stop = store.startLive()
})

afterEach(() => {
	stop()
	vi.useRealTimers()
	vi.unstubAllGlobals()
})

test("numbers come, and the link is up", () => {
	expect(store.link.value).toBe("connecting")
	Source.last.say(7)
	expect(store.link.value).toBe("up")
	expect(store.live.value?.totals.published_rate).toBe(7)
})

test("a lost connection is said, tried again, and what was loaded is loaded anew", () => {
	Source.last.say(1)
	Source.last.onerror?.()
	expect(store.link.value).toBe("lost")
	expect(Source.all).toHaveLength(1)
	vi.advanceTimersByTime(600)
	expect(Source.all).toHaveLength(2)
	Source.last.onerror?.() // still not there
	vi.advanceTimersByTime(1_100)
	expect(Source.all).toHaveLength(3)
	Source.last.say(2)
	expect(store.link.value).toBe("up")
	expect(store.returns.value).toBe(1)
})

test("a connection that says nothing is as good as lost", () => {
	Source.last.say(1)
	vi.advanceTimersByTime(5_900)
	expect(store.link.value).toBe("up")
	vi.advanceTimersByTime(200)
	expect(store.link.value).toBe("lost")
	expect(Source.all[0]?.closed).toBe(true)
})

test("another page's numbers are asked for over one connection", () => {
	store.watch(["orders", "payments"])
	expect(Source.all.map((one) => one.closed)).toEqual([true, false])
	expect(Source.last.url).toBe("/v1/live?topics=orders%2Cpayments")
	store.watch(["orders", "payments"])
	expect(Source.all).toHaveLength(2)
})
