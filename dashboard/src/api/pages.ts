// A list that goes on with a cursor: its first page, loaded again now and then, and as many more as were asked for.

import { useCallback, useState } from "preact/hooks"
import { useLoad } from "./load"

export interface Part<T> {
	rows: T[]
	cursor: string | null
}

export interface Pages<T> {
	rows: T[] | null
	cursor: string | null
	error: unknown
	again: () => void
	further: () => Promise<void>
}

const EVERY_MS = 5_000

/** `key` says which list. Rows that stand in two pages, because the list moved between them, are shown once. */
export function usePages<T extends { id: string }>(
	key: string,
	load: (cursor: string | null, signal?: AbortSignal) => Promise<Part<T>>,
): Pages<T> {
	const [more, put] = useState<{ of: string } & Part<T>>({ of: "", rows: [], cursor: null })
	const first = useLoad<Part<T>>(key, (signal) => load(null, signal), EVERY_MS)
	const extra = more.of === key ? more : null
	const cursor = extra ? extra.cursor : (first.data?.cursor ?? null)
	const further = async () => {
		const found = await load(cursor)
		put({ of: key, rows: [...(extra?.rows ?? []), ...found.rows], cursor: found.cursor })
	}
	const { again } = first
	const anew = useCallback(() => {
		put({ of: "", rows: [], cursor: null })
		again()
	}, [again])
	const rows = first.data === null ? null : once([...first.data.rows, ...(extra?.rows ?? [])])
	return { rows, cursor, error: first.error, again: anew, further }
}

function once<T extends { id: string }>(rows: T[]): T[] {
	const seen = new Set<string>()
	return rows.filter((row) => !seen.has(row.id) && seen.add(row.id))
}
