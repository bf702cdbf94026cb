// Bars over time, as SVG: how many in each stretch of time. The stretch under the pointer, or with the focus, is told.

import { useState } from "preact/hooks"
import { count, plural } from "../show/numbers"
import { brief, clock, day } from "../show/time"

interface BarsProps {
	label: string
	/** From when (ms), and how many. All of the same length. */
	buckets: [number, number][]
	colour: string
	what: string
	height?: number
	onPick?: (from: number, to: number) => void
	picked?: [number, number] | null
	/** From here on the bars are only about right, and drawn paler. */
	palerFrom?: number | null
}

const WIDE = 1000

export function Bars({ label, buckets, colour, what, height = 120, onPick, picked, palerFrom }: BarsProps) {
	const [over, setOver] = useState<number | null>(null)
	const most = Math.max(1, ...buckets.map(([, n]) => n))
	const each = WIDE / Math.max(1, buckets.length)
	const length = buckets.length > 1 ? (buckets[1]?.[0] ?? 0) - (buckets[0]?.[0] ?? 0) : 3_600_000
	const shown = over === null ? null : buckets[over]
	const total = buckets.reduce((sum, [, n]) => sum + n, 0)
	return (
		<div class="bars">
			<div class="bars-told" aria-live="polite">
				{shown ? (
					<>
						<b>{count(shown[1])}</b> {what} from {brief(shown[0])} to {clock(shown[0] + length)}
					</>
				) : (
					<>
						<b>{count(total)}</b> {what} shown; at most {count(most === 1 && total === 0 ? 0 : most)} at a time
					</>
				)}
			</div>
			<svg
				viewBox={`0 0 ${WIDE} ${height}`}
				preserveAspectRatio="none"
				role="img"
				aria-label={label}
				style={{ height: `${height}px` }}
			>
				<line class="bars-floor" x1="0" x2={WIDE} y1={height - 0.5} y2={height - 0.5} />
				{buckets.map(([from, n], index) => {
					const tall = n === 0 ? 0 : Math.max(3, (n / most) * (height - 6))
					const on = picked ? from >= picked[0] && from < picked[1] : false
					return (
						// biome-ignore lint/a11y/noStaticElementInteractions: it is a button where bars can be picked
						<g
							key={from}
							class={on ? "bar on" : "bar"}
							role={onPick ? "button" : "presentation"}
							tabIndex={onPick && n > 0 ? 0 : -1}
							aria-label={`${plural(n, what)} from ${brief(from)}`}
							onMouseEnter={() => setOver(index)}
							onMouseLeave={() => setOver(null)}
							onFocus={() => setOver(index)}
							onBlur={() => setOver(null)}
							onClick={onPick ? () => onPick(from, from + length) : undefined}
							onKeyDown={(event) => {
								if (event.key === "Enter") onPick?.(from, from + length)
							}}
						>
							<rect class="bar-room" x={index * each} y={0} width={each} height={height} />
							<rect
								x={index * each + each * 0.12}
								y={height - tall}
								width={each * 0.76}
								height={tall}
								style={{ fill: `var(${colour})`, opacity: palerFrom && from >= palerFrom ? 0.45 : 1 }}
							/>
						</g>
					)
				})}
			</svg>
			<div class="bars-axis">
				{marks(buckets).map((at) => (
					<span key={at}>{mark(at, length * buckets.length)}</span>
				))}
			</div>
		</div>
	)
}

function marks(buckets: [number, number][]): number[] {
	const first = buckets[0]?.[0]
	const last = buckets[buckets.length - 1]?.[0]
	if (first === undefined || last === undefined) return []
	return [0, 0.25, 0.5, 0.75, 1].map((share) => first + share * (last - first))
}

function mark(at: number, whole: number): string {
	return whole > 36 * 3_600_000 ? `${day(at).slice(5)} ${clock(at).slice(0, 5)}` : clock(at).slice(0, 5)
}

/** A line without axes, beside a number. */
export function Spark({ values, colour }: { values: number[]; colour: string }) {
	if (values.length < 2) return <svg class="spark" viewBox="0 0 100 24" aria-hidden="true" />
	const most = Math.max(1e-9, ...values)
	const step = 100 / (values.length - 1)
	const points = values.map((one, index) => `${(index * step).toFixed(1)},${(22 - (one / most) * 20).toFixed(1)}`)
	return (
		<svg
			class="spark"
			viewBox="0 0 100 24"
			preserveAspectRatio="none"
			aria-hidden="true"
			style={{ color: `var(${colour})` }}
		>
			<polygon points={`0,24 ${points.join(" ")} 100,24`} />
			<polyline points={points.join(" ")} />
		</svg>
	)
}
