// A message as a form has it, before it is published: from nothing, or from a message that is edited and sent again.

import type { Message } from "../api/types"
import { contentOf, jsonOf } from "./content"

export type Form = "json" | "text" | "base64" | "none"

export interface Draft {
	form: Form
	content: string
	key: string
	keyBase64: string | null
	headers: [string, string][]
	headersBase64: Record<string, string>
	priority: string
}

export const EMPTY: Draft = {
	form: "json",
	content: "{\n  \n}",
	key: "",
	keyBase64: null,
	headers: [],
	headersBase64: {},
	priority: "normal",
}

export function draftOf(message: Message): Draft {
	const content = contentOf(message)
	const json = content.kind === "text" && jsonOf(content.text, true) !== undefined
	return {
		form: content.kind === "none" ? "none" : content.kind === "bytes" ? "base64" : json ? "json" : "text",
		content: content.kind === "bytes" ? (message.base64 ?? "") : content.text,
		key: message.key ?? "",
		keyBase64: message.key_base64 ?? null,
		headers: Object.entries(message.headers ?? {}),
		headersBase64: message.headers_base64 ?? {},
		priority: message.priority,
	}
}

/** Why it cannot be published as it is, or null. */
export function faultOf(draft: Draft): string | null {
	if (draft.form === "json") {
		try {
			JSON.parse(draft.content)
		} catch (error) {
			return `This is not JSON: ${error instanceof Error ? error.message : error}`
		}
	}
	if (draft.form === "base64" && !/^[A-Za-z0-9+/\s]*={0,2}\s*$/.test(draft.content)) return "This is not base64."
	const names = draft.headers.map(([name]) => name.trim()).filter(Boolean)
	return new Set(names).size < names.length ? "Two headers have the same name." : null
}

/** What publish takes. JSON goes as text: it is stored as it was typed, large numbers and all. */
export function bodyOf(draft: Draft): Record<string, unknown> {
	const body: Record<string, unknown> = {}
	if (draft.form === "none") body.value = null
	else if (draft.form === "base64") body.base64 = draft.content.replace(/\s+/g, "")
	else body.text = draft.content
	if (draft.keyBase64 !== null) body.key_base64 = draft.keyBase64
	else if (draft.key !== "") body.key = draft.key
	const headers = draft.headers.filter(([name]) => name.trim() !== "")
	if (headers.length > 0) body.headers = Object.fromEntries(headers.map(([name, value]) => [name.trim(), value]))
	if (Object.keys(draft.headersBase64).length > 0) body.headers_base64 = draft.headersBase64
	if (draft.priority !== "normal") body.priority = draft.priority
	return body
}

/** What an edit of a dead letter takes: what it leaves out would stay, so what was taken away is said too. */
export function editOf(draft: Draft): Record<string, unknown> {
	return { headers: {}, ...bodyOf(draft), priority: draft.priority }
}
