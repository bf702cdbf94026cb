// A search field above a list: what is typed holds a moment later; `/` brings the focus here, Esc empties it.

import { useEffect, useRef, useState } from "preact/hooks"
import { Icon } from "./icon"

interface SearchProps {
	label: string
	value: string
	onInput: (value: string) => void
	placeholder?: string
	waitMs?: number
}

export function Search({ label, value, onInput, placeholder = label, waitMs = 200 }: SearchProps) {
	const [text, setText] = useState(value)
	const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
	useEffect(() => setText(value), [value])
	useEffect(() => () => clearTimeout(timer.current), [])
	const put = (now: string, wait = waitMs) => {
		setText(now)
		clearTimeout(timer.current)
		timer.current = setTimeout(() => onInput(now), wait)
	}
	return (
		<div class="search">
			<Icon name="search" size={14} />
			<input
				class="input"
				type="text"
				data-search
				aria-label={label}
				placeholder={placeholder}
				autocomplete="off"
				spellcheck={false}
				value={text}
				onInput={(event) => put(event.currentTarget.value)}
				onKeyDown={(event) => {
					if (event.key === "Enter") put(event.currentTarget.value, 0)
					if (event.key === "Escape" && text) put("", 0)
				}}
			/>
		</div>
	)
}
