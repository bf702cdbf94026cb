// A long list of which only what is on view is loaded, a stretch at a time.

import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { returns } from "./live"

export interface Stretch<T> {
	total: number
	rows: T[]
}

export interface Windowed<T> {
	total: number | null
	at: (index: number) => T | undefined
	onView: (start: number, end: number) => void
	error: unknown
	again: () => void
}

export const STRETCH = 100

/** `key` says which list: another one is loaded from its beginning. `every` renews what is on view. */
export function useWindow<T>(
	key: string,
	load: (offset: number, limit: number, signal: AbortSignal) => Promise<Stretch<T>>,
	every = 0,
): Windowed<T> {
	const rows = useRef(new Map<number, T[]>())
	const view = useRef<[number, number]>([0, STRETCH])
	const latest = useRef(load)
	latest.current = load
	const abort = useRef(new AbortController())
	const asked = useRef(new Set<number>())
	const [state, put] = useState<{ total: number | null; error: unknown; turn: number }>({
		total: null,
		error: null,
		turn: 0,
	})
	const back = returns.value

	const fetch = useCallback(async (index: number, renew = false) => {
		if (asked.current.has(index) || (!renew && rows.current.has(index))) return
		const { signal } = abort.current
		asked.current.add(index)
		try {
			const found = await latest.current(index * STRETCH, STRETCH, signal)
			if (signal.aborted) return
			rows.current.set(index, found.rows)
			put((now) => ({ total: found.total, error: null, turn: now.turn + 1 }))
		} catch (error) {
			if (!signal.aborted) put((now) => ({ ...now, error }))
		} finally {
			if (!signal.aborted) asked.current.delete(index)
		}
	}, [])

	const look = useCallback(
		(renew = false) => {
			const [start, end] = view.current
			for (let index = Math.floor(start / STRETCH); index * STRETCH < Math.max(end, 1); index++)
				void fetch(index, renew)
		},
		[fetch],
	)

	const onView = useCallback(
		(start: number, end: number) => {
			view.current = [start, end]
			look()
		},
		[look],
	)

	const again = useCallback(() => {
		const [start, end] = view.current
		for (const index of rows.current.keys())
			if ((index + 1) * STRETCH <= start || index * STRETCH > end) rows.current.delete(index)
		look(true)
	}, [look])

	// biome-ignore lint/correctness/useExhaustiveDependencies: key and back say that it is another list, or the same anew
	useEffect(() => {
		abort.current.abort()
		abort.current = new AbortController()
		asked.current.clear()
		rows.current.clear()
		put({ total: null, error: null, turn: 0 })
		look()
		return () => abort.current.abort()
	}, [key, back, look])

	useEffect(() => {
		if (!every) return
		const timer = setInterval(() => !document.hidden && again(), every)
		return () => clearInterval(timer)
	}, [every, again])

	const at = useCallback((index: number) => rows.current.get(Math.floor(index / STRETCH))?.[index % STRETCH], [])
	return { total: state.total, at, onView, error: state.error, again }
}
