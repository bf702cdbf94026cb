// The build: one folder of files with hashed names, which the broker serves under /ui/ and packs into its wheel.

import { defineConfig } from "vitest/config"

const broker = process.env.TRINE_HTTP ?? "http://127.0.0.1:8080"

export default defineConfig(({ command }) => ({
	base: command === "build" ? "/ui/" : "/",
	build: {
		outDir: "../src/trine/dashboard/static",
		emptyOutDir: true,
		target: "es2022",
		cssTarget: ["chrome123", "firefox120", "safari17.5"], // those that know light-dark()
		assetsInlineLimit: 0, // the page's policy takes no data: but for pictures
		modulePreload: { polyfill: false },
		sourcemap: false,
	},
	// `npm run dev` beside a broker: the broker takes requests only from its own pages, so they are made to look so.
	server: {
		proxy: {
			"^/(v1|version|health|ready)": { target: broker, changeOrigin: true, headers: { origin: broker } },
		},
	},
	test: { include: ["test/**/*.test.ts"] },
}))
