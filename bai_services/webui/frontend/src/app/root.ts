import { createRootRoute } from '@tanstack/react-router';
import { MissingPage } from '../pages/missing/MissingPage';
import { Shell } from './Shell';

/** The route above all pages. */
export const root = createRootRoute({ component: Shell, notFoundComponent: MissingPage });
