// Publish one message by hand, with every option; or edit one and send it again.

import { useState } from "preact/hooks"
import { path, post } from "../api/call"
import type { Message, Published } from "../api/types"
import { Act } from "../parts/dialog"
import { DraftFields } from "../parts/draft"
import { Choice, Text } from "../parts/field"
import { done } from "../parts/toast"
import { Id } from "../parts/words"
import { bodyOf, type Draft, draftOf, EMPTY, faultOf } from "../show/draft"
import { fromInput } from "../show/time"

interface PublishProps {
	topic: string
	lanes: string[]
	partitions: number
	/** The message that is edited and sent again. */
	from?: Message
	onClose: () => void
}

type When = "now" | "delay" | "at"

export function Publish({ topic, lanes, partitions, from, onClose }: PublishProps) {
	const [draft, setDraft] = useState<Draft>(() => (from ? draftOf(from) : EMPTY))
	const [when, setWhen] = useState<When>("now")
	const [delay, setDelay] = useState("5m")
	const [at, setAt] = useState("")
	const [ttl, setTtl] = useState("")
	const [dedup, setDedup] = useState("")
	const [partition, setPartition] = useState("")
	const [durability, setDurability] = useState("")
	const ready = faultOf(draft) === null && (when !== "at" || at !== "") && (when !== "delay" || delay !== "")
	const act = async () => {
		const body = {
			...bodyOf(draft),
			...(when === "delay" ? { delay } : {}),
			...(when === "at" ? { deliver_at: fromInput(at) } : {}),
			...(ttl ? { ttl } : {}),
			...(dedup ? { dedup_id: dedup } : {}),
			...(partition ? { partition: Number(partition) } : {}),
			...(durability ? { durability } : {}),
		}
		const told = await post<Published>(path`/v1/topics/${topic}/publish`, body)
		done(
			<>
				{told.duplicate ? "Already published as " : told.schedule_id ? "Scheduled " : "Published "}
				<Id id={told.id} /> ({told.durability})
			</>,
		)
	}
	return (
		<Act
			title={from ? `Edit and resend ${from.id}` : `Publish to ${topic}`}
			verb={when === "now" ? "Publish" : "Schedule"}
			onClose={onClose}
			act={act}
			ready={ready}
			wide
		>
			{from && <div class="note">A new message is published; {from.id} stays as it is.</div>}
			<DraftFields draft={draft} put={setDraft} lanes={lanes} />
			<div class="fields">
				<Choice
					label="When"
					value={when}
					options={[
						["now", "Now"],
						["delay", "After a delay"],
						["at", "At a time"],
					]}
					onInput={setWhen}
				/>
				{when === "delay" && <Text label="Delay" value={delay} onInput={setDelay} hint="30s, 5m, 1h30m" />}
				{when === "at" && (
					<Text label="Deliver at" type="datetime-local" step="1" value={at} onInput={setAt} hint="In your time zone" />
				)}
				<Text
					label="Time to live"
					value={ttl}
					onInput={setTtl}
					placeholder="none"
					hint="30s, 1h: not delivered later"
				/>
				<Text
					label="Deduplication id"
					mono
					value={dedup}
					onInput={setDedup}
					placeholder="none"
					hint="The same id again is not stored"
				/>
				<Choice
					label="Partition"
					value={partition}
					options={[
						["", "By key"],
						...Array.from({ length: Math.min(partitions, 500) }, (_, n) => [String(n), String(n)] as const),
					]}
					onInput={setPartition}
				/>
				<Choice
					label="Durability"
					value={durability}
					options={[["", "The topic's"], "synced", "written", "memory"]}
					onInput={setDurability}
				/>
			</div>
		</Act>
	)
}
