// One way to ask the broker: JSON in, JSON out, and every refusal as a Problem with a sentence for people.

import { signal } from "@preact/signals"

export class Problem extends Error {
	override name = "Problem"
	constructor(
		readonly status: number,
		readonly code: string,
		readonly detail: string,
		readonly faults: string[] = [],
	) {
		super(detail)
	}
}

/** Counted up when the broker says that the session is over: the session asks anew. */
export const refusals = signal(0)

export type Query = Record<string, string | number | boolean | null | undefined>

export function path(template: TemplateStringsArray, ...names: (string | number)[]): string {
	return template.reduce((made, part, index) => made + encodeURIComponent(String(names[index - 1])) + part)
}

export function address(at: string, query: Query = {}): string {
	const words = new URLSearchParams()
	for (const [name, value] of Object.entries(query))
		if (value !== null && value !== undefined && value !== "") words.set(name, String(value))
	const text = words.toString()
	return text ? `${at}?${text}` : at
}

export function get<T>(at: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
	return ask<T>("GET", address(at, query), undefined, signal)
}

export function post<T>(at: string, body: unknown = {}, query: Query = {}, signal?: AbortSignal): Promise<T> {
	return ask<T>("POST", address(at, query), body, signal)
}

export const patch = <T>(at: string, body: unknown): Promise<T> => ask<T>("PATCH", at, body)
export const remove = (at: string): Promise<void> => ask<void>("DELETE", at)

async function ask<T>(method: string, at: string, body?: unknown, signal?: AbortSignal): Promise<T> {
	const headers: Record<string, string> = { accept: "application/json" }
	if (method !== "GET") headers["x-trine-request"] = "dashboard" // other sites cannot send it
	if (body !== undefined) headers["content-type"] = "application/json"
	let answer: Response
	try {
		answer = await fetch(at, {
			method,
			headers,
			credentials: "same-origin",
			cache: "no-store",
			...(body === undefined ? {} : { body: JSON.stringify(body) }),
			...(signal ? { signal } : {}),
		})
	} catch (error) {
		if (signal?.aborted) throw error
		throw new Problem(0, "no_connection", "the broker does not answer; it may be stopped or starting")
	}
	if (answer.status === 204) return undefined as T
	const text = await answer.text()
	if (answer.ok) return (text ? JSON.parse(text) : undefined) as T
	throw problemOf(answer, text, at)
}

function problemOf(answer: Response, text: string, at: string): Problem {
	if (answer.status === 401 && !at.startsWith("/v1/session")) refusals.value++
	let told: { code?: string; detail?: string; faults?: unknown[] } = {}
	try {
		told = JSON.parse(text)
	} catch {
		// Whatever stands between the page and the broker answered, and not in the broker's words: the status tells.
	}
	const faults = (told.faults ?? []).map((one) => (typeof one === "string" ? one : fault(one)))
	const detail = told.detail ?? `the broker answered ${answer.status} ${answer.statusText}`.trim()
	return new Problem(answer.status, told.code ?? "unknown", detail, faults)
}

function fault(one: unknown): string {
	const { field, where, detail, message } = one as Record<string, string | undefined>
	return [field ?? where, detail ?? message].filter(Boolean).join(": ") || JSON.stringify(one)
}

/** An error in words for people, whatever was thrown. */
export function told(error: unknown): string {
	if (error instanceof Problem) return [error.detail, ...error.faults].join("; ")
	return error instanceof Error ? error.message : String(error)
}
