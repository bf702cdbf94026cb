// A message's content: what it is (JSON, text, bytes), its size, and one line of it for lists. It is only ever handed on
// as text: nothing here or after it makes markup of it.

import type { Message } from "../api/types"

export interface Content {
	kind: "none" | "text" | "bytes"
	text: string
	bytes: () => Uint8Array<ArrayBuffer>
	size: number
	cut: boolean
}

type Carrier = Pick<Message, "text" | "base64" | "size" | "cut" | "value">

export function contentOf(message: Carrier): Content {
	const cut = message.cut ?? false
	if (message.text !== undefined) {
		const text = message.text
		const bytes = () => new TextEncoder().encode(text)
		return { kind: "text", text, bytes, size: message.size ?? bytes().length, cut }
	}
	if (message.base64 !== undefined) {
		const encoded = message.base64
		const bytes = () => fromBase64(encoded)
		return { kind: "bytes", text: "", bytes, size: message.size ?? bytes().length, cut }
	}
	return { kind: "none", text: "", bytes: () => new Uint8Array(), size: 0, cut: false }
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
	return Uint8Array.from(atob(text), (one) => one.charCodeAt(0))
}

export function toBase64(bytes: Uint8Array): string {
	let text = ""
	for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000))
	return btoa(text)
}

/** A number as it was written: 12345678901234567890 is no number that a browser can hold. */
export class Exact {
	constructor(readonly source: string) {}
}

export type Json = null | boolean | number | string | Exact | Json[] | { [name: string]: Json }

const JSON_CHARS_MAX = 2_000_000

/** The value if the text is a JSON object or list (or any JSON, if `any`), else undefined. */
export function jsonOf(text: string, any = false): Json | undefined {
	if (text.length > JSON_CHARS_MAX || !(any || /^\s*[[{]/.test(text))) return undefined
	try {
		return JSON.parse(text, exact as (key: string, value: unknown) => unknown) as Json
	} catch {
		return undefined
	}
}

function exact(_: string, value: unknown, context?: { source?: string }): unknown {
	const source = context?.source
	return typeof value === "number" && source !== undefined && String(value) !== source ? new Exact(source) : value
}

/** A message of which a list keeps only the beginning: a stream has it whole, and there may be a thousand. */
export function shortened(message: Message, chars: number): Message {
	const { text, base64 } = message
	if (text !== undefined && text.length > chars)
		return { ...message, text: text.slice(0, chars), size: contentOf(message).size, cut: true }
	if (base64 !== undefined && base64.length > chars)
		return { ...message, base64: base64.slice(0, chars - (chars % 4)), size: contentOf(message).size, cut: true }
	return message
}

const LINE_CHARS = 240

/** One line for lists: white space folded, control characters shown as what they are. */
export function lineOf(message: Carrier): string {
	const content = contentOf(message)
	if (content.kind === "none") return ""
	if (content.kind === "bytes") {
		const some = content.bytes().subarray(0, 32)
		return Array.from(some, (one) => one.toString(16).padStart(2, "0")).join(" ")
	}
	return content.text
		.slice(0, LINE_CHARS)
		.replace(/\s+/g, " ")
		.replace(/\p{Cc}/gu, "␀")
}

export function keyOf(message: Pick<Message, "key" | "key_base64">): string | null {
	if (message.key !== undefined && message.key !== null) return message.key
	return message.key_base64 ? `0x${Array.from(fromBase64(message.key_base64), hex).join("")}` : null
}

const hex = (one: number): string => one.toString(16).padStart(2, "0")
