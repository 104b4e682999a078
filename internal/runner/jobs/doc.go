// Package jobs keeps the records and the output of a session's jobs, in a directory that
// only uid 0 writes to, and answers queries about them. The runner that keeps a job
// writes the files. Other runners answer the queries, several of them at a time, and in
// profile dev commands may write to the directory too.
package jobs
