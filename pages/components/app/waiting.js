// Every page says how many runs wait for an approval: beside History, and in the browser's tab.

const SERVER = new URL(".", location.href)
const EVERY_MS = 3000
const HIDDEN_EVERY_MS = 15_000
const SAID = /^‖ \d+ waits? · /

async function look() {
  try {
    const answer = await fetch(new URL("api/waiting", SERVER))
    if (answer.ok) say((await answer.json()).runs)
  } catch {
    // The server is gone: the page itself says so, and this asks again.
  }
  setTimeout(look, document.hidden ? HIDDEN_EVERY_MS : EVERY_MS)
}

function say(runs) {
  document.documentElement.toggleAttribute("data-waiting", runs > 0)
  document.documentElement.style.setProperty("--waiting", `"${runs}"`)
  const bare = document.title.replace(SAID, "")
  const title = runs ? `‖ ${runs} ${runs === 1 ? "waits" : "wait"} · ${bare}` : bare
  if (document.title !== title) document.title = title
}

look()
