import { useEffect } from 'react';
import { Form } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { meQuery } from '../../data/accounts/me';
import { entitiesQuery } from '../../data/entities';

const NAME = 'default';

/**
 * Fills in the project `default` of the chosen domain, if there is one, until the user changes the
 * field.
 */
export function DefaultProject() {
  const form = Form.useFormInstance();
  const { data: me } = useQuery(meQuery);
  const chosen = Form.useWatch<string | undefined>('domain', form);
  const domain = chosen ?? me?.domain;
  const { data, isPlaceholderData } = useQuery({
    ...entitiesQuery('/projects', {
      limit: 1,
      offset: 0,
      sort: 'name',
      filters: { name: NAME, domain: domain ?? '' }
    }),
    enabled: domain !== undefined
  });
  const isFound = data && !isPlaceholderData ? data.total > 0 : undefined;
  useEffect(() => {
    if (isFound !== undefined && !form.isFieldTouched('projects')) {
      form.setFieldValue('projects', isFound ? [NAME] : []);
    }
  }, [form, isFound]);
  return null;
}
