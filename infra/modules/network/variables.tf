variable "project" {
  description = "Project id."
  type        = string
}

variable "regions" {
  description = "Regions with TPUs."
  type        = set(string)

  validation {
    condition     = alltrue([for r in var.regions : contains(keys(local.region_numbers), r)])
    error_message = "infra/modules/network/main.tf has no number for one of these regions: ${join(", ", var.regions)}. Give it the next one there, for ever."
  }
}

variable "services_region" {
  description = "Region of the services."
  type        = string
}

variable "bell_port" {
  description = "UDP port of the workers' bells."
  type        = number
}

variable "nat" {
  description = "Whether workers without an external address reach the internet through Cloud NAT."
  type        = bool
}
