// Dead letters go back: one, many, or by filter, with a rate; first as a dry run. And the jobs that do it.

import { useEffect, useState } from "preact/hooks"
import { get, path, post, told } from "../api/call"
import { useLoad } from "../api/load"
import { may } from "../api/session"
import type { Redrive as Job, Letter } from "../api/types"
import { Act } from "../parts/dialog"
import { DraftFields } from "../parts/draft"
import { Text } from "../parts/field"
import { Icon } from "../parts/icon"
import { done, failed } from "../parts/toast"
import { Badge, Panel } from "../parts/words"
import { lineOf } from "../show/content"
import { draftOf, editOf, faultOf } from "../show/draft"
import { percent, plural } from "../show/numbers"

/** Which letters: those with these ids, or those that match. */
export interface Which {
	ids: string[] | null
	reason: string
	group: string
	key: string
	count: number | null
}

interface Props {
	topic: string
	which: Which
	onClose: () => void
	onDone: () => void
}

interface Started {
	job: Job | null
	would_move?: Letter[] | null
	/** Of a dry run: how many in all, or so far if not complete. */
	matched?: number
	complete?: boolean
}

interface DryRun {
	letters: Letter[] | null
	matched: number
	complete: boolean
	error: unknown
}

const ASKING: DryRun = { letters: null, matched: 0, complete: true, error: null }

function filterOf(which: Which): Record<string, unknown> {
	if (which.ids !== null) return { ids: which.ids }
	const { reason, group, key } = which
	return { ...(reason ? { reason } : {}), ...(group ? { group } : {}), ...(key ? { key } : {}) }
}

function inWords(which: Which): string {
	if (which.ids !== null) return plural(which.ids.length, "letter")
	const parts = [
		which.reason && `whose reason has “${which.reason}”`,
		which.group && `of the group ${which.group}`,
		which.key && `with the key ${which.key}`,
	].filter(Boolean)
	return parts.length > 0 ? `all letters ${parts.join(", ")}` : "all letters"
}

const at = (topic: string, verb: string): string => path`/v1/topics/${topic}/dead-letters/${verb}`

/** The dry run: which letters would go, asked when the dialog opens. */
function useDryRun(topic: string, which: Which): DryRun {
	const [state, put] = useState<DryRun>(ASKING)
	const key = JSON.stringify(filterOf(which))
	// biome-ignore lint/correctness/useExhaustiveDependencies: key is which letters
	useEffect(() => {
		const abort = new AbortController()
		post<Started>(at(topic, "redrive"), { ...filterOf(which), dry_run: true }, {}, abort.signal).then(
			(found) => {
				const letters = found.would_move ?? []
				put({ letters, matched: found.matched ?? letters.length, complete: found.complete ?? true, error: null })
			},
			(error) => !abort.signal.aborted && put({ ...ASKING, error }),
		)
		return () => abort.abort()
	}, [topic, key])
	return state
}

function Would({ run, verb }: { run: ReturnType<typeof useDryRun>; verb: string }) {
	if (run.error !== null) return <div class="note bad">{told(run.error)}</div>
	if (run.letters === null)
		return (
			<div class="note">
				<span class="spinner" aria-hidden="true" /> Looking which letters these are…
			</div>
		)
	const { letters } = run
	return (
		<>
			<div class="note" role="status" data-preview>
				{run.complete ? "" : "At least "}
				{plural(run.matched, "letter")} would be {verb}.
			</div>
			{letters.length > 0 && (
				<ul class="sample">
					{letters.slice(0, 5).map((one) => (
						<li key={one.id}>
							<span class="mono">{one.origin}</span> <span class="muted">{one.reason}</span>{" "}
							<span class="line cut">{lineOf(one)}</span>
						</li>
					))}
					{run.matched > 5 && <li class="muted">and {plural(run.matched - 5, "more", "more")}</li>}
				</ul>
			)}
		</>
	)
}

export function Redrive({ topic, which, onClose, onDone }: Props) {
	const [elsewhere, setElsewhere] = useState("")
	const [rate, setRate] = useState("")
	const run = useDryRun(topic, which)
	const act = async () => {
		const body = {
			...filterOf(which),
			...(elsewhere ? { to: elsewhere } : {}),
			...(rate ? { rate: Number(rate) } : {}),
		}
		const { job } = await post<Started>(at(topic, "redrive"), body)
		done(`Redriving ${inWords(which)} of ${topic}${job ? ` (${job.id})` : ""}`)
		onDone()
	}
	return (
		<Act
			title={`Redrive dead letters of ${topic}`}
			verb="Redrive"
			onClose={onClose}
			act={act}
			ready={(run.letters?.length ?? 0) > 0}
			wide
		>
			<p>
				Sends {inWords(which)} back, each once; a redriven message has an id of its own, and its life links to where it
				came from.
			</p>
			<div class="fields">
				<Text
					label="To"
					mono
					value={elsewhere}
					onInput={setElsewhere}
					placeholder="where they came from"
					hint="Or the name of another topic"
				/>
				<Text
					label="Rate"
					type="number"
					value={rate}
					onInput={setRate}
					placeholder="as fast as it goes"
					hint="Messages a second"
				/>
			</div>
			<Would run={run} verb="sent back" />
		</Act>
	)
}

export function PurgeLetters({ topic, which, onClose, onDone }: Props) {
	const run = useDryRun(topic, which)
	const act = async () => {
		const { purged } = await post<{ purged: number }>(at(topic, "purge"), filterOf(which))
		done(`Purged ${plural(purged, "dead letter")} of ${topic}`)
		onDone()
	}
	const few = which.ids !== null && which.ids.length === 1
	return (
		<Act
			title={`Purge dead letters of ${topic}`}
			verb="Purge"
			onClose={onClose}
			act={act}
			ready={(run.letters?.length ?? 0) > 0}
			danger
			{...(few ? {} : { typed: topic })}
		>
			<p>Ends {inWords(which)} for good.</p>
			<Would run={run} verb="purged" />
			<div class="note warn">This cannot be undone.</div>
		</Act>
	)
}

export function EditLetter({
	topic,
	letter,
	onClose,
	onDone,
}: {
	topic: string
	letter: Letter
	onClose: () => void
	onDone: () => void
}) {
	const [draft, setDraft] = useState(() => draftOf(letter))
	const act = async () => {
		await post<Started>(at(topic, "redrive"), { ids: [letter.id], edit: editOf(draft) })
		done(`Edited and redriven: ${letter.origin}`)
		onDone()
	}
	return (
		<Act
			title={`Edit and redrive ${letter.id}`}
			verb="Redrive edited"
			onClose={onClose}
			act={act}
			ready={faultOf(draft) === null}
			wide
		>
			<div class="note">
				Given up on because: {letter.reason}. What you send goes to <b>{letter.origin.split("/")[0]}</b> in its place.
			</div>
			<DraftFields draft={draft} put={setDraft} lanes={["high", "normal", "low"]} />
		</Act>
	)
}

const ENDED_SHOWN = 3
/** The topic whose dead letters a job sends back. */
const originOf = (job: Job): string => job.topic.replace(/\.dlq$/, "")

/** Redrives that run, or were interrupted, and the last that ended. */
export function Jobs({ topic }: { topic?: string }) {
	const jobs = useLoad<{ redrives: Job[] }>("redrives", (signal) => get("/v1/redrives", {}, signal), 1_500)
	const all = (jobs.data?.redrives ?? []).filter(
		(one) => (topic === undefined || originOf(one) === topic) && (one.of > 0 || one.state === "running"),
	)
	const running = all.filter((one) => one.state === "running")
	const shown = [
		...running,
		...all
			.filter((one) => one.state !== "running")
			.slice(-ENDED_SHOWN)
			.reverse(),
	]
	if (shown.length === 0) return null
	const say = async (job: Job, verb: "cancel" | "resume") => {
		try {
			await post(path`/v1/redrives/${job.id}/${verb}`)
			done(verb === "cancel" ? `Cancelled ${job.id}; what it has moved stays moved` : `${job.id} goes on`)
			jobs.again()
		} catch (error) {
			failed(error)
		}
	}
	return (
		<Panel title="Redrives" flush>
			{shown.map((job) => {
				const share = job.of > 0 ? Math.min(1, job.looked_at / job.of) : 1
				const stopped = job.state === "running" && !job.active
				return (
					<div class="job" key={job.id}>
						<b class="mono">{job.id}</b>
						<span>{originOf(job)}</span>
						<Badge
							tone={
								stopped || job.error ? "warn" : job.state === "running" ? "info" : job.state === "done" ? "ok" : "plain"
							}
						>
							{stopped ? "stopped" : job.state}
						</Badge>
						<span
							class="meter"
							role="progressbar"
							aria-label={`Progress of ${job.id}`}
							aria-valuenow={Math.round(share * 100)}
							aria-valuemin={0}
							aria-valuemax={100}
						>
							<i style={{ width: `${share * 100}%` }} />
						</span>
						<span class="muted">
							{plural(job.moved, "moved", "moved")} {job.of > 0 && `; ${percent(share)} looked at`}
						</span>
						{job.error && <span class="bad">{job.error}</span>}
						{may("admin", originOf(job)) && job.state === "running" && (
							<span class="actions">
								{stopped && (
									<button type="button" class="button small" onClick={() => say(job, "resume")}>
										<Icon name="play" size={13} /> Go on
									</button>
								)}
								<button type="button" class="button small" onClick={() => say(job, "cancel")}>
									Cancel
								</button>
							</span>
						)}
					</div>
				)
			})}
		</Panel>
	)
}
