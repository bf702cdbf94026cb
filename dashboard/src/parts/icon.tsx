// The page's own few pictures, as lines that take the colour of the text beside them.

const PATHS = {
	overview: "M2 9.5 5.2 6l3 3L14 3M2 13.5h12",
	topics: "M2 4h12M2 8h12M2 12h8",
	groups:
		"M5.5 7a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM1.5 13.5c0-2.4 1.8-4 4-4s4 1.6 4 4M10.6 2.9a2.2 2.2 0 0 1 0 4M11.8 9.8c1.6.5 2.7 1.9 2.7 3.7",
	letters: "M2 3.5h12v9H2zM2.3 4l5.7 4.6L13.7 4",
	schedule: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM8 4.5V8l2.4 1.6",
	pipelines: "M2 3h4v4H2zM10 9h4v4h-4zM6 5h2.5c1 0 1.5.5 1.5 1.5V8M4 7v4c0 .6.4 1 1 1h5",
	trace:
		"M3.5 4.2a1.4 1.4 0 1 0 0-2.8 1.4 1.4 0 0 0 0 2.8ZM12.5 14.6a1.4 1.4 0 1 0 0-2.8 1.4 1.4 0 0 0 0 2.8ZM5 2.8h4.6a2.6 2.6 0 0 1 0 5.2H6.4a2.6 2.6 0 0 0 0 5.2H11",
	search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM10.8 10.8 14 14",
	close: "m4 4 8 8M12 4l-8 8",
	menu: "M2 4h12M2 8h12M2 12h12",
	check: "m3 8.5 3.2 3.2L13 5",
	warn: "M8 2 1.5 13.5h13zM8 6.5v3.2M8 11.7v.1",
	bad: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM8 4.8v4M8 11.1v.1",
	copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
	plus: "M8 3v10M3 8h10",
	edit: "m10.5 2.8 2.7 2.7-7.5 7.5-3.4.7.7-3.4z",
	trash: "M2.5 4.2h11M6 4V2.5h4V4M4 4.2l.6 9.3h6.8l.6-9.3M6.6 6.8v4M9.4 6.8v4",
	play: "M4.5 2.8v10.4L13 8z",
	pause: "M5 3v10M11 3v10",
	seek: "M2.5 8h9M8 4l4 4-4 4M14 3.5v9",
	replay: "M2.8 8a5.2 5.2 0 1 0 1.7-3.9M2.6 2.6v3h3",
	send: "M2 8 14 2.5 10.5 14 7.6 9zM7.6 9 14 2.5",
	move: "M8 2v12M2 8h12M5.8 4.2 8 2l2.2 2.2M5.8 11.8 8 14l2.2-2.2",
	sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1v1.4M8 13.6V15M1 8h1.4M13.6 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
	moon: "M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1Z",
	auto: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM8 2v12M8 5l4.5-1M8 8h6M8 11h4.8",
	down: "m4 6 4 4 4-4",
	right: "m6 4 4 4-4 4",
	left: "m10 4-4 4 4 4",
	up: "m4 10 4-4 4 4",
	key: "M5.5 12.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM7.7 7.3 13 2M10.5 4.5l2 2",
	out: "M6 2.5H2.5v11H6M6 8h8M11 5l3 3-3 3",
	external: "M6 3H3v10h10v-3M9 3h4v4M13 3 7.5 8.5",
	download: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
	tail: "M2 3h12M2 6.5h8M2 10h5M11.5 9v5M9.3 12l2.2 2.2 2.2-2.2",
	gear: "M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM8 1.5v2M8 12.5v2M1.5 8h2M12.5 8h2M3.4 3.4l1.4 1.4M11.2 11.2l1.4 1.4M12.6 3.4l-1.4 1.4M4.8 11.2l-1.4 1.4",
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
	return (
		<svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
			<path d={PATHS[name]} />
		</svg>
	)
}

export function Logo() {
	return (
		<svg class="logo" width="24" height="24" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
			<rect width="32" height="32" rx="7" />
			<path d="M8 10h16M8 16h11M8 22h6" />
			<circle cx="24" cy="16" r="1.9" />
			<circle cx="19" cy="22" r="1.9" />
		</svg>
	)
}
