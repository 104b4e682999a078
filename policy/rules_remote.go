package policy

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// remoteRules are the rules about commands that run, or destroy data, on other machines and
// in containers, by the command's name.
var remoteRules = map[string]func(call){
	"docker": ruleContainers, "podman": ruleContainers, "nerdctl": ruleContainers,
	"docker-compose": ruleCompose, "podman-compose": ruleCompose,
	"kubectl": ruleKubectl, "oc": ruleKubectl,
	"gh": ruleGh, "glab": ruleGh, "hub": ruleGh,
	"aws": ruleAws, "gcloud": ruleCloud, "az": ruleCloud, "gsutil": ruleCloud, "s3cmd": ruleCloud, "rclone": ruleCloud, "mc": ruleCloud,
	"doctl": ruleCloud, "heroku": ruleCloud, "fly": ruleCloud, "flyctl": ruleCloud, "vercel": ruleCloud, "supabase": ruleCloud,
	"helm": ruleCloud, "helmfile": ruleCloud, "terraform": ruleTerraform, "tofu": ruleTerraform, "terragrunt": ruleTerraform, "pulumi": ruleTerraform,
	"azcopy": ruleCloud, "s5cmd": ruleCloud, "wrangler": ruleCloud, "netlify": ruleCloud, "firebase": ruleCloud, "railway": ruleCloud, "eksctl": ruleCloud,
	"vagrant": ruleMachines, "multipass": ruleMachines, "limactl": ruleMachines, "lxc": ruleMachines, "incus": ruleMachines, "virsh": ruleMachines,
	"minikube": ruleMachines, "kind": ruleMachines, "k3d": ruleMachines, "crictl": ruleMachines, "ctr": ruleMachines,
	"npm": ruleRegistry, "pnpm": ruleRegistry, "cargo": ruleRegistry, "gem": ruleRegistry,
	"wget": ruleWgetMethod, "http": ruleHTTPie, "https": ruleHTTPie, "xh": ruleHTTPie, "xhs": ruleHTTPie,
	"psql": ruleSQL, "mysql": ruleSQL, "mariadb": ruleSQL, "sqlite3": ruleSQL, "sqlcmd": ruleSQL, "cockroach": ruleSQL, "clickhouse-client": ruleSQL,
	"mongo": ruleSQL, "mongosh": ruleSQL, "redis-cli": ruleSQL, "duckdb": ruleSQL, "bq": ruleSQL,
	"dropdb": ruleDropped, "dropuser": ruleDropped, "mysqladmin": ruleSQL,
	"curl": ruleCurl,
}

// plainWords returns the literal words of a command that are not options.
func plainWords(args []arg) []string {
	var out []string
	for _, a := range args[1:] {
		if text, ok := a.literal(); ok && !strings.HasPrefix(text, "-") {
			out = append(out, text)
		}
	}
	return out
}

// firstOf returns the first wanted word among the first n, or "".
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
	composeRuns   = set("run exec down rm kill")
	kubeRuns      = set("exec run attach debug cp port-forward proxy")
	kubeDeletes   = set("delete drain replace")
	cloudDeletes  = set(`rm rb delete destroy del mb-delete remove purge uninstall deletefile sync-delete terminate wipe rmdir cleanup apps:destroy
 pg:reset ssh exec`)
	machineEnds = set("destroy delete rm undefine purge")
)

// The options of these programs that come before their verb and take a value.
var (
	dockerGrammar  = grammar{short: "H:l:c:D", long: "host= log-level= context= config= tlscacert= tlscert= tlskey= connection= url= identity= namespace= address= debug tls tlsverify remote"}
	composeGrammar = grammar{short: "f:p:H:", long: "file= project-name= profile= env-file= project-directory= ansi= parallel= progress= context= host= compatibility dry-run verbose"}
	kubeGrammar    = grammar{
		short: "n:s:v:",
		long: "namespace= context= cluster= user= server= kubeconfig= token= as= as-group= as-uid= cache-dir= certificate-authority= client-certificate= client-key=" +
			" request-timeout= tls-server-name= profile= profile-output= password= username= insecure-skip-tls-verify warnings-as-errors",
	}
	cloudGrammar = grammar{
		short: "n:",
		long: "profile= region= output= endpoint-url= query= ca-bundle= color= project= account= configuration= format= verbosity= subscription= context=" +
			" kube-context= kubeconfig= namespace= config= cwd= stack= app= org= chdir= working-dir= terragrunt-working-dir= debug no-paginate no-verify-ssl no-sign-request quiet",
	}
)

// verbs returns the literal words of a command after the options that come before its verb.
func (g grammar) verbs(args []arg) []string {
	return plainWords(append(args[:1:1], g.parse(args[1:]).rest...))
}

// containerGroups maps docker's groups of commands to the commands in them that run
// something in a container, or that end or remove things.
var containerGroups = map[string]map[string]bool{
	"container": set("run exec start create attach cp commit kill rm stop restart prune"),
	"service":   set("create update rm scale rollback"), "stack": set("deploy up rm down remove"), "swarm": set("init join leave update"),
	"system": set("prune reset"), "pod": set("rm kill stop prune"), "machine": set("rm reset ssh"), "image": set("rm prune"), "volume": set("rm prune"), "network": set("rm prune"), "builder": set("prune"),
	"buildx": set("prune rm"), "checkpoint": set("rm"), "config": set("rm"), "context": set("rm"), "manifest": set("rm"), "node": set("rm"), "plugin": set("rm"), "secret": set("rm"),
	"trust": nil,
}

func ruleContainers(c call) {
	rest := dockerGrammar.parse(c.args[1:]).rest
	if len(rest) > 0 && rest[0].is("compose") {
		ruleCompose(c.with(rest[1:]))
		return
	}
	found := dockerGrammar.verbs(c.args)
	for i, text := range found[:min(2, len(found))] { // the first may be the value of an option
		group, is := containerGroups[text]
		if is && i+1 < len(found) && group[found[i+1]] || !is && containerRuns[text] {
			c.refuse(setExec+"/remote", c.args[0].text+" "+text)
		}
		if is {
			return
		}
	}
}

func ruleCompose(c call) {
	if text := firstOf(composeGrammar.verbs(c.args), 3, composeRuns); text != "" {
		c.refuse(setExec+"/remote", c.args[0].text+" compose "+text)
	}
}

func ruleKubectl(c call) {
	found := kubeGrammar.verbs(c.args)
	if text := firstOf(found, 3, kubeRuns); text != "" {
		c.refuse(setExec+"/remote", c.args[0].text+" "+text)
	}
	dry := slices.ContainsFunc(c.args, func(a arg) bool { return a.is("--dry-run=client") || a.is("--dry-run=server") })
	if text := firstOf(found, 3, kubeDeletes); text != "" && !dry {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+text)
	}
	if firstOf(found, 1, set("apply")) != "" && !dry && slices.ContainsFunc(c.args, func(a arg) bool { return a.is("--prune") || a.is("--prune=true") }) {
		c.refuse(setDisk+"/remote", c.args[0].text+" apply --prune")
	}
}

func ruleGh(c call) {
	found := grammar{short: "R:", long: "repo= hostname="}.verbs(c.args)
	if len(found) > 2 && found[0] == "alias" && found[1] == "set" {
		for i, a := range c.args[1:] {
			if strings.HasPrefix(a.lead(), "!") || (a.is("-s") || a.is("--shell")) && i+1 < len(c.args) {
				c.refuse(setExec+"/option", c.args[0].text+" alias set "+quote(a.text))
			}
		}
	}
	if text := firstOf(found, 2, set("delete delete-asset archive")); text != "" {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+text)
	}
	if firstOf(found, 1, set("api")) == "" {
		return
	}
	g := grammar{short: "f:F:H:iX:q:p:t:", long: "method= field= raw-field= header= input= jq= template= cache= hostname= preview="}
	g.optionValues(c.args, "X method", func(name string, v arg) {
		if strings.EqualFold(v.text, "DELETE") {
			c.refuse(setDisk+"/remote", c.args[0].text+" api -"+name+" DELETE")
		}
	})
}

func ruleAws(c call) {
	for _, text := range plainWords(c.args) {
		if strings.HasPrefix(text, "delete-") || strings.HasPrefix(text, "terminate-") || strings.HasPrefix(text, "remove-") || strings.HasPrefix(text, "deregister-") {
			c.refuse(setDisk+"/remote", "aws "+text)
		}
	}
	for _, a := range c.args {
		if a.is("--delete") {
			c.refuse(setDisk+"/remote", "aws … --delete")
		}
	}
	ruleCloud(c)
}

func ruleCloud(c call) {
	found := cloudGrammar.verbs(c.args)
	if text := firstOf(found, 5, cloudDeletes); text != "" {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+text)
	}
	if len(found) > 0 && (strings.HasSuffix(found[0], ":delete") || strings.HasSuffix(found[0], ":destroy")) {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+found[0])
	}
	if c.name == "rclone" && firstOf(found, 1, set("sync")) != "" && !slices.ContainsFunc(c.args, func(a arg) bool { return a.is("-n") || a.is("--dry-run") }) {
		c.refuse(setDisk+"/remote", "rclone sync, which deletes what is not in the source")
	}
}

// ruleTerraform refuses what ruleCloud does, and the options and words of infrastructure
// tools that destroy what they have made. A plan of it destroys nothing.
func ruleTerraform(c call) {
	found := cloudGrammar.verbs(c.args)
	ruleCloud(c)
	if c.name == "pulumi" && firstOf(found, 1, set("down")) != "" {
		c.refuse(setDisk+"/remote", "pulumi down")
	}
	if firstOf(found, 2, set("apply")) != "" && slices.ContainsFunc(c.args, func(a arg) bool { return a.is("-destroy") || a.is("--destroy") || a.is("-destroy=true") }) {
		c.refuse(setDisk+"/remote", c.args[0].text+" apply -destroy")
	}
}

// ruleMachines refuses to end virtual machines, clusters and containers with their data.
func ruleMachines(c call) {
	if text := firstOf(cloudGrammar.verbs(c.args), 2, machineEnds); text != "" {
		c.refuse(setExec+"/remote", c.args[0].text+" "+text)
	}
}

// ruleRegistry refuses to take back a package that is published.
func ruleRegistry(c call) {
	if text := firstOf(plainWords(c.args), 1, set("unpublish yank")); text != "" {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+text)
	}
}

func ruleWgetMethod(c call) {
	eachValue(c.args, "--method", func(v arg, _ int) {
		if strings.EqualFold(v.text, "DELETE") {
			c.refuse(setDisk+"/remote", "wget --method DELETE")
		}
	})
}

// ruleHTTPie refuses the method DELETE of HTTPie and xh, which is the first word before the
// address.
func ruleHTTPie(c call) {
	if found := plainWords(c.args); len(found) > 1 && strings.EqualFold(found[0], "delete") {
		c.refuse(setDisk+"/remote", c.args[0].text+" DELETE")
	}
}

// dropsData matches SQL and similar languages that destroy data.
var dropsData = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(drop\s+(table|database|schema|view|index|user|role|owned|column)|drop\b|truncate\b|delete\s+from|flushall|flushdb|dropDatabase|deleteMany|\.drop\(|\.remove\(|alter\s+table\s+\S+\s+drop)`)
})

func ruleSQL(c call) {
	for _, a := range c.args[1:] {
		if dropsData().MatchString(a.text) {
			c.refuse(setDisk+"/remote", c.args[0].text+" "+quote(a.text))
			return
		}
	}
	if !c.in.set {
		return
	}
	if text := c.read(c.in).text; dropsData().MatchString(text) {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+quote(text))
	}
}

func ruleDropped(c call) {
	c.refuse(setDisk+"/remote", quote(joined(c.args).text))
}

// curlGrammar has the options of curl that take a value, as far as they have a letter.
var curlGrammar = grammar{
	short: "#0123469aBfgGiIjJklLMnNOpqRsSvVZA:b:c:C:d:D:e:E:F:h?H:K:m:o:P:Q:r:t:T:u:U:w:x:X:y:Y:z:",
	long: "request= request-target= url= data= data-raw= data-binary= data-urlencode= json= form= header= output= user= user-agent= proxy= cookie= cookie-jar= referer= max-time=" +
		" connect-timeout= retry= write-out= upload-file= cacert= cert= key= resolve= config= range=",
}

func ruleCurl(c call) {
	curlGrammar.optionValues(c.args, "X request", func(name string, v arg) {
		if strings.EqualFold(v.text, "DELETE") {
			c.refuse(setDisk+"/remote", "curl -"+name+" DELETE")
		}
	})
}
