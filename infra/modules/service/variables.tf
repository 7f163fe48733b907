variable "project" {
  description = "Project id."
  type        = string
}

variable "project_number" {
  description = "Number of the project, which is part of the services' addresses."
  type        = string
}

variable "region" {
  description = "Region of the services."
  type        = string
}

variable "image" {
  description = "The image, by digest: all services run the same one."
  type        = string

  validation {
    condition     = length(regexall("@sha256:[0-9a-f]{64}$", var.image)) > 0
    error_message = "The image must be named by its digest (…@sha256:…): a tag may move under a running system."
  }
}

variable "emails" {
  description = "Addresses of the accounts, by name."
  type        = map(string)
}

variable "environment" {
  description = "Settings that all services share, by the names of the server's variables."
  type        = map(string)
}

variable "bells" {
  description = "Network and subnetwork from which reconcile rings workers."
  type        = object({ network = string, subnetwork = string })
}

variable "ready" {
  description = "What must be there before a service starts: it reads the store before it serves."
  type        = any
}
