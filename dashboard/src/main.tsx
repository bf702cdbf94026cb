// The dashboard begins here.

import "@fontsource-variable/inter/wght.css"
import "./style/tokens.css"
import "./style/layout.css"
import "./style/parts.css"
import "./style/pages.css"
import { render } from "preact"
import { App } from "./app"
import { startTheme } from "./parts/theme"
import { listenRoute } from "./route"

startTheme()
listenRoute()
const root = document.getElementById("app")
if (root !== null) render(<App />, root)
