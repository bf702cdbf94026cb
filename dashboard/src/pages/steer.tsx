// What steers a group: seek, replay, pause, resume. Each asks the broker first what would happen, and shows it.

import { useEffect, useState } from "preact/hooks"
import { path, post, told } from "../api/call"
import type { Group, Partition, Preview } from "../api/types"
import { Act } from "../parts/dialog"
import { Check, Choice, Segments, Text } from "../parts/field"
import { done } from "../parts/toast"
import { N } from "../parts/words"
import { count, plural } from "../show/numbers"
import { fromInput, toInput } from "../show/time"

interface SteerProps {
	topic: string
	group: string
	partitions: Partition[]
	onClose: () => void
	onDone: () => void
}

type Verb = "seek" | "replay" | "pause" | "resume"
const at = ({ topic, group }: SteerProps, verb: Verb): string => path`/v1/topics/${topic}/groups/${group}/${verb}`

interface Would {
	preview: Preview | null
	error: unknown
}

/** What would happen, asked again a moment after the form was changed. */
function usePreview(props: SteerProps, verb: Verb, body: Record<string, unknown> | null): Would {
	const [would, put] = useState<Would>({ preview: null, error: null })
	const key = JSON.stringify(body)
	// biome-ignore lint/correctness/useExhaustiveDependencies: key is the body
	useEffect(() => {
		put({ preview: null, error: null })
		if (body === null) return
		const abort = new AbortController()
		const timer = setTimeout(() => {
			post<Preview>(at(props, verb), body, { dry_run: true }, abort.signal).then(
				(preview) => put({ preview, error: null }),
				(error) => !abort.signal.aborted && put({ preview: null, error }),
			)
		}, 200)
		return () => {
			clearTimeout(timer)
			abort.abort()
		}
	}, [key, verb, props.topic, props.group])
	return would
}

const ROWS = 40

function WouldHappen({ would, asked }: { would: Would; asked: boolean }) {
	const { preview, error } = would
	if (!asked) return <div class="note">Say where to, and what would happen is shown here.</div>
	if (error !== null) return <div class="note bad">{told(error)}</div>
	if (preview === null)
		return (
			<div class="note">
				<span class="spinner" aria-hidden="true" /> Asking what would happen…
			</div>
		)
	const moved = preview.partitions.filter((one) => one.from !== one.to || one.again > 0 || one.skipped > 0)
	return (
		<>
			<div class={preview.messages_skipped > 0 ? "note warn" : "note"} role="status" data-preview>
				{preview.says}
			</div>
			{moved.length > 0 && (
				<div class="scrolled">
					<table class="plain">
						<thead>
							<tr>
								<th class="end">Partition</th>
								<th class="end">From</th>
								<th class="end">To</th>
								<th class="end">Again</th>
								<th class="end">Skipped</th>
							</tr>
						</thead>
						<tbody>
							{moved.slice(0, ROWS).map((one) => (
								<tr key={one.partition}>
									<td class="end">{one.partition}</td>
									<td class="end">{count(one.from)}</td>
									<td class="end">{count(one.to)}</td>
									<td class="end">
										<N n={one.again} />
									</td>
									<td class="end">
										<N n={one.skipped} tone="warn" />
									</td>
								</tr>
							))}
						</tbody>
					</table>
					{moved.length > ROWS && <small>and {plural(moved.length - ROWS, "partition")} more</small>}
				</div>
			)}
		</>
	)
}

type Target = "earliest" | "latest" | "offset" | "time"

export function Seek(props: SteerProps) {
	const [target, setTarget] = useState<Target>("time")
	const [offset, setOffset] = useState("")
	const [time, setTime] = useState(() => toInput(Date.now() - 3_600_000))
	const [partition, setPartition] = useState("")
	const one = partition === "" ? {} : { partition: Number(partition) }
	const instant = fromInput(time)
	const body =
		target === "offset"
			? offset === "" || partition === ""
				? null
				: { offset: Number(offset), ...one }
			: target === "time"
				? instant === null
					? null
					: { time: instant, ...one }
				: { to: target, ...one }
	const would = usePreview(props, "seek", body)
	const act = async () => {
		await post(at(props, "seek"), body)
		done(`${props.group} was moved`)
		props.onDone()
	}
	return (
		<Act
			title={`Seek ${props.group}`}
			verb="Move the group"
			onClose={props.onClose}
			act={act}
			ready={would.preview !== null}
			wide
		>
			<Segments
				label="Where to"
				value={target}
				options={[
					["time", "A time"],
					["offset", "An offset"],
					["earliest", "The beginning"],
					["latest", "The end"],
				]}
				onInput={setTarget}
			/>
			<div class="fields">
				{target === "time" && (
					<Text label="Time" type="datetime-local" step="1" value={time} onInput={setTime} hint="In your time zone" />
				)}
				{target === "offset" && <Text label="Offset" type="number" value={offset} onInput={setOffset} />}
				<Choice
					label="Partition"
					value={partition}
					options={[
						["", target === "offset" ? "choose" : "All"],
						...props.partitions
							.slice(0, 1000)
							.map(
								(part) =>
									[
										String(part.number),
										`${part.number} (${count(part.first_offset)} to ${count(part.next_offset)})`,
									] as const,
							),
					]}
					onInput={setPartition}
				/>
			</div>
			<WouldHappen would={would} asked={body !== null} />
		</Act>
	)
}

export function Replay(props: SteerProps) {
	const [failed, setFailed] = useState(true)
	const [key, setKey] = useState("")
	const [from, setFrom] = useState("")
	const [until, setUntil] = useState("")
	const any = failed || key !== "" || from !== "" || until !== ""
	const body = any
		? {
				failed,
				...(key ? { key } : {}),
				...(from ? { from_time: fromInput(from) } : {}),
				...(until ? { to_time: fromInput(until) } : {}),
			}
		: null
	const would = usePreview(props, "replay", body)
	const act = async () => {
		const told = await post<{ count: number }>(at(props, "replay"), body)
		done(`${plural(told.count, "message")} will be delivered again to ${props.group}`)
		props.onDone()
	}
	return (
		<Act
			title={`Replay to ${props.group}`}
			verb="Deliver again"
			onClose={props.onClose}
			act={act}
			ready={would.preview !== null}
			wide
		>
			<p class="muted">Settled messages are delivered again, beside live traffic.</p>
			<Check label="Only failed messages" hint="Rejected, expired, or given up" value={failed} onInput={setFailed} />
			<div class="fields">
				<Text label="Of the key" mono value={key} onInput={setKey} placeholder="any" />
				<Text label="Published from" type="datetime-local" step="1" value={from} onInput={setFrom} />
				<Text label="Published before" type="datetime-local" step="1" value={until} onInput={setUntil} />
			</div>
			<WouldHappen would={would} asked={any} />
		</Act>
	)
}

export function Pause(props: SteerProps) {
	const [reason, setReason] = useState("")
	const would = usePreview(props, "pause", {})
	const act = async () => {
		await post<Group>(at(props, "pause"), reason ? { reason } : {})
		done(`${props.group} is paused`)
		props.onDone()
	}
	return (
		<Act title={`Pause ${props.group}`} verb="Pause" onClose={props.onClose} act={act} ready={would.preview !== null}>
			<Text
				label="Why"
				value={reason}
				onInput={setReason}
				placeholder="paused by hand"
				hint="Everybody who looks at the group sees it"
			/>
			<WouldHappen would={would} asked />
		</Act>
	)
}

export function Resume(props: SteerProps) {
	const would = usePreview(props, "resume", {})
	const act = async () => {
		await post<Group>(at(props, "resume"))
		done(`${props.group} goes on`)
		props.onDone()
	}
	return (
		<Act title={`Resume ${props.group}`} verb="Resume" onClose={props.onClose} act={act} ready={would.preview !== null}>
			<WouldHappen would={would} asked />
		</Act>
	)
}
