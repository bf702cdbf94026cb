// Instants for people, in the browser's own time zone, to the millisecond where it matters.

import { span } from "./numbers"

const two = (n: number): string => String(n).padStart(2, "0")

export function clock(ms: number, millis = false): string {
	const at = new Date(ms)
	const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
	return millis ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text
}

export function day(ms: number): string {
	const at = new Date(ms)
	return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
}

export const moment = (ms: number, millis = false): string => `${day(ms)} ${clock(ms, millis)}`

/** Only the time if it is of today, else the day too, and the year if it is another one. */
export function brief(ms: number, now = Date.now(), millis = false): string {
	if (day(ms) === day(now)) return clock(ms, millis)
	const sameYear = new Date(ms).getFullYear() === new Date(now).getFullYear()
	return sameYear ? moment(ms, millis).slice(5) : moment(ms, millis)
}

export function ago(ms: number, now = Date.now()): string {
	const gone = now - ms
	if (Math.abs(gone) < 1_000) return "now"
	const text = span(Math.abs(gone) < 60_000 ? Math.round(Math.abs(gone) / 1_000) * 1_000 : Math.abs(gone))
	return gone > 0 ? `${text} ago` : `in ${text}`
}

/** The value of an `<input type=datetime-local>`, and back to what the broker takes. */
export function toInput(ms: number): string {
	const at = new Date(ms)
	return `${day(ms)}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
}

export function fromInput(text: string): string | null {
	if (!text) return null
	const ms = new Date(text).getTime()
	return Number.isNaN(ms) ? null : new Date(ms).toISOString()
}
