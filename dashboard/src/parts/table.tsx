// A table of any length: only the rows on view are in the page, so ten thousand cost what forty cost. It scrolls with
// the window. Rows that are not loaded yet are asked for.

import type { ComponentChildren } from "preact"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { Icon } from "./icon"
import { WIDTHS, type Width, width } from "./width"

export interface Column<T> {
	id: string
	title: string
	/** A track of CSS grid: `minmax(160px, 2fr)`, `90px`. */
	track: string
	cell: (row: T, index: number) => ComponentChildren
	end?: boolean
	/** Not shown on what is smaller: `m` not on a phone, `l` from a laptop on. */
	from?: Width
	/** Only on a phone. */
	only?: "s"
	sort?: boolean
	told?: string
	/** What stands in the head instead of the title. */
	head?: ComponentChildren
}

export interface Sort {
	by: string
	down: boolean
}

interface TableProps<T> {
	label: string
	columns: Column<T>[]
	count: number
	at: (index: number) => T | undefined
	rowKey: (row: T) => string
	/** Rows [start, end) are on view. */
	onView?: (start: number, end: number) => void
	sort?: Sort
	onSort?: (sort: Sort) => void
	onOpen?: (row: T) => void
	open?: string | null
	rowHeight?: number
	rowClass?: (row: T) => string
}

const BEYOND = 8

export function Table<T>(props: TableProps<T>) {
	const { columns, count, at, rowKey, onView, sort, onSort, onOpen, open, rowHeight = 38 } = props
	const body = useRef<HTMLDivElement>(null)
	const [[start, end], setView] = useState<[number, number]>([0, 40])

	// biome-ignore lint/correctness/useExhaustiveDependencies: another count may move what is above the table
	useLayoutEffect(() => {
		let frame = 0
		const look = () => {
			frame = 0
			if (body.current === null) return
			const top = body.current.getBoundingClientRect().top
			const first = Math.max(0, Math.floor(-top / rowHeight) - BEYOND)
			const past = Math.max(first, Math.ceil((innerHeight - top) / rowHeight) + BEYOND)
			setView((now) => (now[0] === first && now[1] === past ? now : [first, past]))
		}
		const soon = () => {
			frame ||= requestAnimationFrame(look)
		}
		look()
		addEventListener("scroll", soon, { passive: true, capture: true })
		addEventListener("resize", soon)
		return () => {
			cancelAnimationFrame(frame)
			removeEventListener("scroll", soon, { capture: true })
			removeEventListener("resize", soon)
		}
	}, [rowHeight, count])

	const last = Math.min(end, count)
	useEffect(() => onView?.(start, last), [start, last, onView])

	const room = width.value
	const shown = columns.filter((one) =>
		one.only ? room === one.only : WIDTHS.indexOf(room) >= WIDTHS.indexOf(one.from ?? "s"),
	)
	const tracks = { gridTemplateColumns: shown.map((one) => one.track).join(" ") }
	const rows: ComponentChildren[] = []
	for (let index = Math.min(start, Math.max(0, count - 1)); index < last; index++) {
		const row = at(index)
		const key = row === undefined ? `…${index}` : rowKey(row)
		const classes = ["tr", onOpen ? "opens" : "", open === key ? "open" : "", row ? (props.rowClass?.(row) ?? "") : ""]
		rows.push(
			// biome-ignore lint/a11y/useKeyWithClickEvents: the row's link or button does the same by keyboard
			<div
				key={key}
				role="row"
				aria-rowindex={index + 2}
				class={classes.filter(Boolean).join(" ")}
				style={{ ...tracks, height: `${rowHeight}px`, transform: `translateY(${index * rowHeight}px)` }}
				onClick={row && onOpen ? (event) => opened(event, () => onOpen(row)) : undefined}
			>
				{shown.map((one) => (
					<div key={one.id} role="cell" class={one.end ? "td end" : "td"}>
						{row === undefined ? <span class="ghost" /> : one.cell(row, index)}
					</div>
				))}
			</div>,
		)
	}
	return (
		<div class="table" role="table" aria-label={props.label} aria-rowcount={count + 1}>
			<div class="thead" role="row" style={tracks}>
				{shown.map((one) => (
					<div
						key={one.id}
						role="columnheader"
						class={one.end ? "th end" : "th"}
						title={one.told}
						aria-sort={told(one.id, sort)}
					>
						{one.sort && onSort ? (
							<button
								type="button"
								onClick={() => onSort({ by: one.id, down: sort?.by === one.id ? !sort.down : one.end === true })}
							>
								{one.title}
								{sort?.by === one.id && <Icon name={sort.down ? "down" : "up"} size={12} />}
							</button>
						) : (
							(one.head ?? one.title)
						)}
					</div>
				))}
			</div>
			<div ref={body} class="tbody" role="rowgroup" style={{ height: `${count * rowHeight}px` }}>
				{rows}
			</div>
		</div>
	)
}

function told(id: string, sort?: Sort): "ascending" | "descending" | undefined {
	if (sort?.by !== id) return undefined
	return sort.down ? "descending" : "ascending"
}

/** A click on a link or a button in the row is theirs; so is marking text. */
function opened(event: MouseEvent, open: () => void): void {
	if ((event.target as Element).closest("a, button, input, label")) return
	if (getSelection()?.toString()) return
	open()
}
