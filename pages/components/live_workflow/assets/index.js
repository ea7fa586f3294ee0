// Entry of the component that shows a run.

import { copyAsWritten } from "./copying.js"
import { enter, leave } from "./draw_formulas.js"
import { mounting } from "./mounting.js"
import { sheets } from "./sheets.js"
import { LiveWorkflow } from "./view.js"

const own = await sheets(["style.css", "graph.css", "timeline.css", "prose.css", "reader.css", "edit.css"])

function make(parent) {
  enter(parent)
  copyAsWritten(parent)
  return new LiveWorkflow(parent)
}

export default mounting(own, make, leave)
