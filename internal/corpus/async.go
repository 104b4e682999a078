package corpus

// ManagerRows are about what a job manager and a session do in time; they run
// where there are those.
var ManagerRows = map[string]string{
	"asy-036": "a job manager's callbacks", "asy-038": "a job manager's cancel", "asy-039": "a job manager's retention",
	"asy-040": "a job manager's retention", "asy-041": "a job manager's deliveries", "asy-042": "a job manager's end",
	"asy-043": "a job manager's owners", "asy-044": "a job manager's drain", "asy-045": "a job manager's drain",
	"asy-047": "when deliveries are joined", "asy-048": "when a delivery prompts",
	"asy-083": "processes are killed", "asy-085": "a command's standard input",
}
