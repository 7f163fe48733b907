variable "project" {
  description = "Project id."
  type        = string
}

variable "project_number" {
  description = "Number of the project, which is part of the names of Google's own agents."
  type        = string
}

variable "region" {
  description = "Region of the services and the queue."
  type        = string
}

variable "database" {
  description = "Name of the Firestore database."
  type        = string
}

variable "bucket" {
  description = "Name of the bucket for checkpoints, logs, bundles and agents."
  type        = string
}

variable "services" {
  description = "Names of the Cloud Run services, by function: api, events, reconcile."
  type        = map(string)
}

variable "topics" {
  description = "Names of the topics: jobs, hints, events, dead-letter, tpu-events."
  type        = map(string)
}

variable "dead_letter_subscriptions" {
  description = "Names of the subscriptions that forward to the dead-letter topic, by topic."
  type        = map(string)
}

variable "queue" {
  description = "Name of the Cloud Tasks queue."
  type        = string
}

variable "sink_writer" {
  description = "Principal as which the Logging sink publishes."
  type        = string
}

variable "people" {
  description = "Accounts that may use the HTTP API."
  type        = list(string)
}

variable "publishers" {
  description = "Accounts that may publish job messages."
  type        = list(string)
}

variable "worker_accounts" {
  description = "Further service accounts that jobs may run as."
  type        = list(string)
}

variable "worker_prefixes" {
  description = "Of these worker accounts (`worker` is the usual one, others by their address), how the ids of the jobs begin whose folders below jobs/ they may read and write: such as team-a-. Absent: every job's."
  type        = map(string)
}

variable "worker_secrets" {
  description = "Ids of the secrets that jobs may borrow."
  type        = list(string)
}

variable "lent_secrets" {
  description = "Of each further worker account, the ids of those of these secrets that the policy lends to owners whose jobs may run as it."
  type        = map(list(string))
}
