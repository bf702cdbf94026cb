// Where one is: the part of the address after `#`, as segments and a query. The broker serves one page for all.

import { computed, signal } from "@preact/signals"

export interface Place {
	segments: string[]
	query: Record<string, string>
}

const raw = signal(typeof location === "undefined" ? "" : location.hash)

export function listenRoute(): void {
	addEventListener("hashchange", () => {
		raw.value = location.hash
	})
}

export function parse(hash: string): Place {
	const [way = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2)
	return { segments: way.split("/").filter(Boolean).map(plain), query: Object.fromEntries(new URLSearchParams(query)) }
}

function plain(segment: string): string {
	try {
		return decodeURIComponent(segment)
	} catch {
		return segment // a lone % that somebody typed
	}
}

export const place = computed(() => parse(raw.value))

export type Words = Record<string, string | number | undefined | null>

export function to(segments: (string | number)[], query: Words = {}): string {
	const words = new URLSearchParams()
	for (const [name, value] of Object.entries(query))
		if (value !== undefined && value !== null && value !== "") words.set(name, String(value))
	const text = words.toString()
	return `#/${segments.map((one) => encodeURIComponent(one)).join("/")}${text ? `?${text}` : ""}`
}

export function go(hash: string): void {
	location.hash = hash
}

/** Puts words into the query of the place without a step in the browser's history. */
export function amend(words: Words): void {
	const { segments, query } = place.peek()
	const hash = to(segments, { ...query, ...words })
	if (hash === location.hash) return
	history.replaceState(null, "", hash)
	raw.value = hash
}

/** The page of a message's life, by message id (`orders/2/1841`) or schedule id (`orders@494221-17`). */
export function lifeOf(id: string): string {
	return to(["life", ...id.split("/")])
}
