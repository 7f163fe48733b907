variable "project" {
  description = "Project id."
  type        = string
}

variable "region" {
  description = "Region of the queue, the Scheduler job and the services."
  type        = string
}

variable "urls" {
  description = "Root addresses of the services: events, reconcile."
  type        = map(string)
}

variable "services" {
  description = "Names of the services: events."
  type        = map(string)
}

variable "emails" {
  description = "Addresses of the accounts: push, eventarc, scheduler."
  type        = map(string)
}

variable "eventarc_ready" {
  description = "What must be there before Eventarc's triggers."
  type        = any
}
