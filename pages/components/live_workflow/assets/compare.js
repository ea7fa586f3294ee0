// Entry of the component that compares two runs.

import { ComparedRuns } from "./compared_runs.js"
import { mounting } from "./mounting.js"
import { sheets } from "./sheets.js"

const own = await sheets(["style.css", "graph.css", "timeline.css", "prose.css", "compare.css"])

export default mounting(own, (parent) => new ComparedRuns(parent))
