// Loading for a page: what was loaded, whether it is being loaded, why not, and again when the connection returns.

import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { returns } from "./live"

export interface Loaded<T> {
	data: T | null
	error: unknown
	loading: boolean
	again: () => void
}

/** `key` says what is loaded: another key forgets what there was. `every` loads again after so many milliseconds. */
export function useLoad<T>(key: string, load: (signal: AbortSignal) => Promise<T>, every?: number): Loaded<T> {
	const [state, put] = useState<{ key: string; data: T | null; error: unknown; loading: boolean }>({
		key,
		data: null,
		error: null,
		loading: true,
	})
	const [turn, next] = useState(0)
	const latest = useRef(load)
	latest.current = load
	const again = useCallback(() => next((before) => before + 1), [])
	const back = returns.value

	// biome-ignore lint/correctness/useExhaustiveDependencies: turn and back only say that it is to be loaded again
	useEffect(() => {
		const abort = new AbortController()
		let timer: ReturnType<typeof setTimeout> | undefined
		const once = async () => {
			put((now) => (now.key === key ? { ...now, loading: true } : { key, data: null, error: null, loading: true }))
			try {
				const data = await latest.current(abort.signal)
				if (!abort.signal.aborted) put({ key, data, error: null, loading: false })
			} catch (error) {
				if (!abort.signal.aborted) put((now) => ({ ...now, key, error, loading: false }))
			}
			if (every && !abort.signal.aborted) timer = setTimeout(() => (document.hidden ? wait() : void once()), every)
		}
		const wait = () => {
			timer = setTimeout(() => (document.hidden ? wait() : void once()), every)
		}
		void once()
		return () => {
			abort.abort()
			clearTimeout(timer)
		}
	}, [key, every, turn, back])

	const current = state.key === key ? state : { data: null, error: null, loading: true }
	return { data: current.data, error: current.error, loading: current.loading, again }
}
