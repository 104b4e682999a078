package policy

import (
	"regexp"
	"strings"
)

// remoteRules are the rules of what destroys data, or runs, elsewhere, by the command's name.
var remoteRules = map[string]ruleFunc{
	"docker": ruleContainers, "podman": ruleContainers, "nerdctl": ruleContainers,
	"docker-compose": ruleCompose, "podman-compose": ruleCompose,
	"kubectl": ruleKubectl, "oc": ruleKubectl,
	"gh": ruleGh, "glab": ruleGh, "hub": ruleGh,
	"aws": ruleAws, "gcloud": ruleCloud, "az": ruleCloud, "gsutil": ruleCloud, "s3cmd": ruleCloud, "rclone": ruleCloud, "mc": ruleCloud,
	"doctl": ruleCloud, "heroku": ruleCloud, "fly": ruleCloud, "flyctl": ruleCloud, "vercel": ruleCloud, "supabase": ruleCloud,
	"helm": ruleCloud, "terraform": ruleCloud, "tofu": ruleCloud, "pulumi": ruleCloud,
	"psql": ruleSQL, "mysql": ruleSQL, "mariadb": ruleSQL, "sqlite3": ruleSQL, "sqlcmd": ruleSQL, "cockroach": ruleSQL, "clickhouse-client": ruleSQL,
	"mongo": ruleSQL, "mongosh": ruleSQL, "redis-cli": ruleSQL, "duckdb": ruleSQL, "bq": ruleSQL,
	"dropdb": ruleDropped, "dropuser": ruleDropped, "mysqladmin": ruleSQL,
	"curl": ruleCurl,
}

// words returns the literal words of a command that are not options.
func plainWords(args []arg) []string {
	var out []string
	for _, a := range args[1:] {
		if text, ok := a.literal(); ok && !strings.HasPrefix(text, "-") {
			out = append(out, text)
		}
	}
	return out
}

// firstOf returns the first of some words that is among the first n.
func firstOf(found []string, n int, wanted map[string]bool) string {
	for _, text := range found[:min(n, len(found))] {
		if wanted[text] {
			return text
		}
	}
	return ""
}

var (
	containerRuns = set("run exec start create attach cp commit kill rm rmi stop restart")
	kubeRuns      = set("exec run attach debug cp port-forward proxy")
	kubeDeletes   = set("delete drain replace")
	cloudDeletes  = set(`rm rb delete destroy del mb-delete remove purge uninstall deletefile sync-delete terminate wipe rmdir cleanup apps:destroy
 pg:reset ssh exec`)
)

// containerGroups are the words behind which docker has commands of a group, and
// those of them that run something in a container, or end or remove it.
var containerGroups = map[string]map[string]bool{
	"container": set("run exec start create attach cp commit kill rm stop restart prune"),
	"service":   set("create update rm scale rollback"), "stack": set("deploy up rm down remove"), "swarm": set("init join leave update"),
	"system": set("prune"), "image": set("rm prune"), "volume": set("rm prune"), "network": set("rm prune"), "builder": set("prune"),
	"buildx": nil, "checkpoint": nil, "config": nil, "context": nil, "manifest": nil, "node": nil, "plugin": nil, "secret": nil, "trust": nil,
}

func ruleContainers(w *walker, args []arg, _ stream) {
	found := plainWords(args)
	if len(found) > 0 && found[0] == "compose" {
		ruleCompose(w, args, stream{})
		return
	}
	for i, text := range found[:min(2, len(found))] { // the first may be the value of an option
		group, is := containerGroups[text]
		if is && i+1 < len(found) && group[found[i+1]] || !is && containerRuns[text] {
			w.deny(setExec+"/remote", args[0].at, args[0].text+" "+text)
		}
		if is {
			return
		}
	}
}

func ruleCompose(w *walker, args []arg, _ stream) {
	if text := firstOf(plainWords(args), 3, set("run exec down rm kill")); text != "" {
		w.deny(setExec+"/remote", args[0].at, args[0].text+" compose "+text)
	}
}

func ruleKubectl(w *walker, args []arg, _ stream) {
	found := plainWords(args)
	if text := firstOf(found, 3, kubeRuns); text != "" {
		w.deny(setExec+"/remote", args[0].at, args[0].text+" "+text)
	}
	if text := firstOf(found, 3, kubeDeletes); text != "" {
		w.deny(setDisk+"/remote", args[0].at, args[0].text+" "+text)
	}
}

func ruleGh(w *walker, args []arg, _ stream) {
	found := plainWords(args)
	if text := firstOf(found, 2, set("delete delete-asset archive")); text != "" {
		w.deny(setDisk+"/remote", args[0].at, args[0].text+" "+text)
	}
	if firstOf(found, 1, set("api")) == "" {
		return
	}
	for _, option := range []string{"-X", "--method"} {
		optionValues(args, option, func(v arg) {
			if strings.EqualFold(v.text, "DELETE") {
				w.deny(setDisk+"/remote", args[0].at, args[0].text+" api "+option+" DELETE")
			}
		})
	}
}

func ruleAws(w *walker, args []arg, in stream) {
	for _, text := range plainWords(args) {
		if strings.HasPrefix(text, "delete-") || strings.HasPrefix(text, "terminate-") || strings.HasPrefix(text, "remove-") || strings.HasPrefix(text, "deregister-") {
			w.deny(setDisk+"/remote", args[0].at, "aws "+text)
		}
	}
	for _, a := range args {
		if a.is("--delete") {
			w.deny(setDisk+"/remote", args[0].at, "aws … --delete")
		}
	}
	ruleCloud(w, args, in)
}

func ruleCloud(w *walker, args []arg, _ stream) {
	if text := firstOf(plainWords(args), 5, cloudDeletes); text != "" {
		w.deny(setDisk+"/remote", args[0].at, args[0].text+" "+text)
	}
}

// dropsData is SQL, and its like, that destroys.
var dropsData = regexp.MustCompile(`(?i)\b(drop\s+(table|database|schema|view|index|user|role|owned|column)|drop\b|truncate\b|delete\s+from|flushall|flushdb|dropDatabase|deleteMany|\.drop\(|\.remove\(|alter\s+table\s+\S+\s+drop)`)

func ruleSQL(w *walker, args []arg, in stream) {
	for _, a := range args[1:] {
		if dropsData.MatchString(a.text) {
			w.deny(setDisk+"/remote", args[0].at, args[0].text+" "+quote(a.text))
			return
		}
	}
	if !in.set {
		return
	}
	if text := w.read(in).text; dropsData.MatchString(text) {
		w.deny(setDisk+"/remote", args[0].at, args[0].text+" "+quote(text))
	}
}

func ruleDropped(w *walker, args []arg, _ stream) {
	w.deny(setDisk+"/remote", args[0].at, quote(joined(args).text))
}

func ruleCurl(w *walker, args []arg, _ stream) {
	for _, option := range []string{"-X", "--request"} {
		optionValues(args, option, func(v arg) {
			if strings.EqualFold(v.text, "DELETE") {
				w.deny(setDisk+"/remote", args[0].at, "curl "+option+" DELETE")
			}
		})
	}
}
