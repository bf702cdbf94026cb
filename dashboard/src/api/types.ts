// What the broker answers, as far as the page reads it. The words are those of /openapi.json.

export type Action = "read" | "publish" | "consume" | "admin"

export interface Session {
	keys: boolean
	authenticated: boolean
	id: string | null
	role: string | null
	topics: string[]
	may: Action[]
}

export interface Totals {
	published_rate: number
	delivered_rate: number
	settled_rate: number
	acked: number
	failed: number
	dead_lettered: number
	pending: number
	in_flight: number
	scheduled: number
	lag: number
	messages: number
}

export interface Health {
	level: "ok" | "warn" | "bad"
	what: string
	where: string | null
}

export interface BrokerState {
	ready: boolean
	version: string
	uptime_s: number
	memory_bytes: number
	cpu_percent: number
	/** null: the store is in memory. */
	disk_used_bytes: number | null
	disk_free_bytes: number | null
	data_bytes: number
	connections: number
	health: Health[]
}

export interface TopicRow {
	name: string
	kind: string
	partitions: number
	messages: number
	depth: number
	size_bytes: number
	published_rate: number
	settled_rate: number
	lag: number
	in_flight: number
	scheduled: number
	dead_letters: number
	groups: number
	lanes: Record<string, number>
}

export interface TopicNow {
	name?: string
	messages: number
	depth: number
	published_rate: number
	settled_rate: number
	lag: number
	in_flight: number
	scheduled: number
	dead_letters: number
}

export interface GroupNow {
	topic: string
	group: string
	lag: number
	lag_age_ms: number
	in_flight: number
	retrying: number
	settled_rate: number
	paused: string | null
	members: number
}

export interface Live {
	at: string
	totals: Totals
	broker: BrokerState
	topics: Record<string, TopicNow>
	top: TopicNow[]
	groups?: GroupNow[]
}

export interface History {
	every_s: number
	fields: string[]
	samples: number[][]
}

export interface TopicPage {
	total: number
	topics: TopicRow[]
}

export type Config = Record<string, unknown>

export interface Partition {
	number: number
	first_offset: number
	next_offset: number
	bytes: number
	first_time_ms?: number | null
	last_time_ms?: number | null
	groups?: Record<string, { lag: number; in_flight: number; retrying: number; lanes: Record<string, number> }>
}

export interface Topic {
	name: string
	kind: string
	messages: number
	bytes: number
	scheduled: number
	depth: number
	lanes: Record<string, number>
	groups: string[]
	partitions: Partition[]
	archived: Record<string, number>
	config: Config
}

/** A message's content as the page asks for it: text where it is UTF-8, base64 where it is not. */
export interface Message {
	id: string
	topic: string
	partition: number
	offset: number
	timestamp: string
	timestamp_ms: number
	priority: string
	value?: null
	text?: string
	base64?: string
	size?: number | null
	cut?: boolean
	key?: string | null
	key_base64?: string | null
	headers?: Record<string, string>
	headers_base64?: Record<string, string>
	expires?: string | null
	dedup_id?: string | null
	producer?: string | null
	schedule_id?: string | null
}

export interface Letter extends Message {
	reason: string
	origin: string
	group: string
	attempts: number
	failed: string
}

export interface SearchPage {
	messages: Message[]
	cursor: string | null
	scanned: number
	done: boolean
}

export interface Published {
	id: string
	durability: string
	partition?: number
	offset?: number
	schedule_id?: string
	duplicate?: boolean
}

export interface Lag {
	count: number
	age_ms: number
	in_flight: number
	retrying: number
	partitions: Record<string, number>
	lanes: Record<string, number>
	ages_ms?: Record<string, number>
}

export interface Member {
	name: string
	partitions: number[]
	in_flight: number
	seen_ms?: number | null
}

export interface Rebalance {
	at_ms: number
	generation: number
	why: string
	joined: string[]
	left: string[]
	/** Partitions. */
	moved: number[]
	members: number
	/** null: still moving. */
	pause_ms: number | null
}

export interface Group {
	name: string
	topic: string
	paused: string | null
	lag: Lag
	members: Member[]
	config: Config
}

export interface GroupRow extends GroupNow {}

export interface GroupPage {
	total: number
	groups: GroupRow[]
}

export interface Preview {
	partitions: { partition: number; from: number; to: number; again: number; skipped: number }[]
	messages_again: number
	messages_skipped: number
	in_flight_returned: number
	says: string
}

export interface LetterSummary {
	total: number
	/** false: counting goes on, and more is told when asked again. */
	complete: boolean
	by_reason: { topic: string; group: string; reason: string; count: number; last_at_ms: number }[]
	counts: [number, number][]
}

export interface Redrive {
	id: string
	/** Of the dead letters: `orders.dlq`. */
	topic: string
	state: string
	active: boolean
	matched: number
	moved: number
	passed_over: number
	looked_at: number
	of: number
	error: string | null
}

export interface Scheduled extends Omit<Message, "partition" | "offset" | "timestamp" | "timestamp_ms"> {
	due: string
	due_ms: number
	published: string
}

export interface Upcoming {
	buckets: [number, number][]
	/** From here on hours are known by their count alone, and spread evenly. */
	exact_until_ms: number | null
	overdue: number
	later: number
	total: number
}

export interface Cron {
	name: string
	topic: string
	expression: string
	timezone: string
	next: string
	fired: number
}

export interface Archive {
	topic: string
	path: string | null
	partitions: { partition: number; archived: number; first: number; next: number; behind: number }[]
	behind: number
	last_at_ms: number | null
	run: Run | null
}

export interface Run {
	id: string
	kind: string
	name: string
	topics: string[]
	state: "running" | "ended" | "failed" | "lost"
	began_ms: number
	ended_ms: number | null
	heard_ms: number | null
	seconds: number | null
	rows: number | null
	summary: Record<string, unknown>
	error: string | null
	has_report: boolean
	report?: Report | null
}

/** A report's numbers by windows of time: what its pictures are drawn from. */
export interface Report {
	window_ms: number
	made_ms: number
	topics: string[]
	summary: Record<string, unknown>
	/** When, messages, bytes. */
	published: number[][]
	/** When, delivered, acked, failed. */
	flow: number[][]
	/** When, how many. */
	lag: number[][]
	groups: Record<string, unknown>[]
	reasons: Record<string, unknown>[]
}

export interface TraceEvent {
	at: string
	at_ms: number
	what: string
	group: string | null
	member: string | null
	attempt: number | null
	detail: string
}

export interface GroupLife {
	state: string
	attempts: number
	deliveries: number
	latency_ms: number | null
	latency_due_ms: number | null
	member: string | null
	settled_ms: number | null
	deadline_ms: number | null
	retry_ms: number | null
	reason: string | null
}

export interface Trace {
	message_id: string | null
	schedule_id: string | null
	key: string | null
	published_ms: number | null
	due_ms: number | null
	kept: boolean
	events: TraceEvent[]
	groups: Record<string, GroupLife>
	links: Record<string, string[]>
}

export interface Found {
	message_id: string
	key: string | null
	at: string
	at_ms: number
	state: string | null
	group: string | null
	attempts: number
	member: string | null
}
