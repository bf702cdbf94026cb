// JSON as a tree that folds: strings, numbers and names are text nodes, whatever they contain. Large lists show a part.

import { useState } from "preact/hooks"
import { Exact, type Json } from "../show/content"
import { plural } from "../show/numbers"
import { Icon } from "./icon"

const SHOWN = 100
const OPEN_DEPTH = 3
const OPEN_COUNT = 40
const STRING_CHARS = 4_000

export function JsonTree({ value }: { value: Json }) {
	return (
		<div class="json">
			<Node value={value} depth={0} />
		</div>
	)
}

function Node({ value, depth, name }: { value: Json; depth: number; name?: string }) {
	const label = name === undefined ? null : <span class="field-name">{name}: </span>
	if (value === null || typeof value !== "object" || value instanceof Exact)
		return (
			<>
				{label}
				<Leaf value={value} />
			</>
		)
	return <Branch value={value} depth={depth} label={label} />
}

function Leaf({ value }: { value: Json }) {
	const [all, setAll] = useState(false)
	if (value instanceof Exact) return <span class="number">{value.source}</span>
	if (typeof value === "number") return <span class="number">{String(value)}</span>
	if (typeof value !== "string") return <span class="word">{String(value)}</span>
	if (all || value.length <= STRING_CHARS) return <span class="string">{JSON.stringify(value)}</span>
	return (
		<span class="string">
			{JSON.stringify(value.slice(0, STRING_CHARS)).slice(0, -1)}…{" "}
			<button type="button" class="more" onClick={() => setAll(true)}>
				all {plural(value.length, "character")}
			</button>
		</span>
	)
}

function Branch({
	value,
	depth,
	label,
}: {
	value: Json[] | { [name: string]: Json }
	depth: number
	label: preact.ComponentChild
}) {
	const list = Array.isArray(value)
	const entries: [string, Json][] = list ? value.map((one, index) => [String(index), one]) : Object.entries(value)
	const [open, setOpen] = useState(depth === 0 || (depth < OPEN_DEPTH && entries.length <= OPEN_COUNT))
	const [most, setMost] = useState(SHOWN)
	const [left, right] = list ? ["[", "]"] : ["{", "}"]
	if (entries.length === 0)
		return (
			<>
				{label}
				{left}
				{right}
			</>
		)
	return (
		<>
			<button
				type="button"
				class="fold"
				aria-expanded={open}
				aria-label={open ? "Fold" : "Unfold"}
				onClick={() => setOpen(!open)}
			>
				<Icon name={open ? "down" : "right"} size={10} />
			</button>
			{label}
			{left}
			{open ? (
				<>
					<ul>
						{entries.slice(0, most).map(([name, one]) => (
							<li key={name}>
								<Node value={one} depth={depth + 1} {...(list ? {} : { name })} />
							</li>
						))}
						{entries.length > most && (
							<li>
								<button type="button" class="more" onClick={() => setMost(most + 10 * SHOWN)}>
									{plural(entries.length - most, "more", "more")}
								</button>
							</li>
						)}
					</ul>
					{right}
				</>
			) : (
				<>
					<span class="much"> {plural(entries.length, list ? "item" : "field")} </span>
					{right}
				</>
			)}
		</>
	)
}
