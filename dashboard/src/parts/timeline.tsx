// The picture of a message's life: a row for the log, one for each group, bars while a member held it.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import type { Trace } from "../api/types"
import { span } from "../show/numbers"
import { clock } from "../show/time"
import { type Held, type Row, timeline } from "../show/timeline"

const LEFT = 132
const RIGHT = 34
const TOP = 34
const TALL = 58
const LABEL = 64
/** The first label begins at its place, and the others stand around theirs. */
const FIRST = 50
const LEAST = 620

interface Props {
	trace: Trace
	now: number
	on: number | null
	onEvent: (index: number | null) => void
}

export function TimelinePicture({ trace, now, on, onEvent }: Props) {
	const box = useRef<HTMLDivElement>(null)
	const [room, setRoom] = useState(900)
	useLayoutEffect(() => {
		const parent = box.current
		if (parent === null) return
		const look = () => setRoom(Math.max(LEAST, parent.clientWidth))
		look()
		const sized = new ResizeObserver(look)
		sized.observe(parent)
		return () => sized.disconnect()
	}, [])
	const line = useMemo(() => timeline(trace, now), [trace, now])
	const x = (ms: number) => LEFT + line.place(ms) * (room - LEFT - RIGHT)
	const high = TOP + line.rows.length * TALL + 6
	const begin = line.times[0] ?? 0
	return (
		<div class="life">
			<div class="life-scroll" ref={box}>
				<svg
					width={room}
					height={high}
					viewBox={`0 0 ${room} ${high}`}
					style={{ width: `${room}px` }}
					role="img"
					aria-label={`The life of ${trace.message_id ?? trace.schedule_id}, drawn; the same as the list of events below`}
				>
					<Ticks times={line.times} x={x} begin={begin} high={high} />
					{line.rows.map((row, index) => (
						<RowPicture
							key={row.group ?? ""}
							row={row}
							y={TOP + index * TALL}
							x={x}
							room={room}
							on={on}
							onEvent={onEvent}
						/>
					))}
				</svg>
			</div>
			<small>
				Long waits are drawn shorter than they were; the numbers are true.
				{line.left > 0 && ` The first ${line.left} events are only in the list.`}
			</small>
		</div>
	)
}

function Ticks({ times, x, begin, high }: { times: number[]; x: (ms: number) => number; begin: number; high: number }) {
	let last = -LABEL
	return (
		<g>
			{times.map((at, index) => {
				const where = x(at)
				const room = where - last >= LABEL
				if (room) last = index === 0 ? where + FIRST : where
				return (
					<g key={at}>
						<line class="tick" x1={where} x2={where} y1={room ? 20 : TOP - 6} y2={high} />
						{room && (
							<text x={where} y={13} text-anchor={index === 0 ? "start" : "middle"}>
								{index === 0 ? clock(at, true) : `+${span(at - begin)}`}
							</text>
						)}
					</g>
				)
			})}
		</g>
	)
}

interface RowProps {
	row: Row
	y: number
	x: (ms: number) => number
	room: number
	on: number | null
	onEvent: (index: number | null) => void
}

function RowPicture({ row, y, x, room, on, onEvent }: RowProps) {
	const middle = y + 24
	const first = row.points[0]
	const last = row.points[row.points.length - 1]
	const held = row.held[row.held.length - 1]
	return (
		<g>
			<line class="floor" x1={0} x2={room} y1={y + TALL - 4} y2={y + TALL - 4} />
			<text class="life-name" x={2} y={middle + 4}>
				{cut(row.group ?? "Log")}
			</text>
			{row.group === null && first && last && (
				<line class="wait" x1={x(first.at)} x2={x(last.at)} y1={middle} y2={middle} />
			)}
			{row.waits.map(([from, to]) => (
				<g key={from}>
					<line class="wait" x1={x(from)} x2={x(to)} y1={middle} y2={middle} />
					{x(to) - x(from) > LABEL && (
						<text x={(x(from) + x(to)) / 2} y={middle - 8} text-anchor="middle">
							{span(to - from)}
						</text>
					)}
				</g>
			))}
			{row.held.map((one) => (
				<Bar
					key={one.event}
					held={one}
					x={x}
					middle={middle}
					last={one === held}
					on={on === one.event}
					onEvent={onEvent}
				/>
			))}
			{row.points.map((point) => (
				// biome-ignore lint/a11y/noStaticElementInteractions: the list below tells the same
				<g key={point.event} onMouseEnter={() => onEvent(point.event)} onMouseLeave={() => onEvent(null)}>
					<circle class={`dot ${point.kind}${on === point.event ? " on" : ""}`} cx={x(point.at)} cy={middle} r={5} />
					{row.group === null && (
						<text x={x(point.at)} y={middle + 20} text-anchor={x(point.at) > room - 60 ? "end" : "middle"}>
							{point.what.toLowerCase()}
						</text>
					)}
					<title>{`${point.what} at ${clock(point.at, true)}`}</title>
				</g>
			))}
		</g>
	)
}

function Bar({
	held,
	x,
	middle,
	on,
	onEvent,
}: {
	held: Held
	x: (ms: number) => number
	middle: number
	last: boolean
	on: boolean
	onEvent: (index: number | null) => void
}) {
	const from = x(held.from)
	const wide = Math.max(x(held.to) - from, 7)
	return (
		// biome-ignore lint/a11y/noStaticElementInteractions: the list below tells the same
		<g onMouseEnter={() => onEvent(held.event)} onMouseLeave={() => onEvent(null)}>
			<rect class={`held ${held.end}${on ? " on" : ""}`} x={from} y={middle - 9} width={wide} height={18} rx={4} />
			{wide > 26 && (
				<text class="held-text" x={from + 7} y={middle + 4}>
					#{held.attempt ?? "?"}
				</text>
			)}
			{wide > 30 && (
				<text x={from} y={middle + 22}>
					{span(held.to - held.from)}
					{held.end === "open" ? " so far" : ""}
				</text>
			)}
			<title>{`Attempt ${held.attempt ?? "?"} by ${held.member ?? "somebody"}: ${span(held.to - held.from)}, ${held.end === "open" ? "in flight" : held.what.toLowerCase().replace("_", " ")}`}</title>
		</g>
	)
}

const cut = (name: string): string => (name.length > 17 ? `${name.slice(0, 16)}…` : name)
