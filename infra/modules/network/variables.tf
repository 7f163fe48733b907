variable "project" {
  description = "Project id."
  type        = string
}

variable "regions" {
  description = "Regions with TPUs."
  type        = set(string)
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
